// @ts-check
/**
 * The page's service worker: shows what is pushed while no page looks at it, and opens the right conversation. It keeps nothing and has no token.
 *
 * Registered as `/sw.js`, or `/sw.js?lang=zh` (or `en`) where the page's language is not the browser's. What is pushed is `PushPayload` of `/openapi.json`.
 *
 * | message | from, to | |
 * |---|---|---|
 * | `seqline:pushed` `{payload}` | here, pages | something was pushed: a page whose stream hangs may look |
 * | `seqline:open` `{conversation_id}` | here, a page | a notification was clicked; who answers on the port with anything opens it, else the page is navigated to `?c=` |
 * | `seqline:subscription` `{subscription, old_endpoint}` | here, pages | the browser changed its subscription: to be registered (null: there is none any more) |
 * | `seqline:read` `{conversation_id, seq}` | a page, here | read up to there: its notification goes |
 * | `seqline:clear` | a page, here | signed out: all notifications go |
 *
 * The types below are what is used of a service worker's globals, so that this file is checked with any set of type libraries.
 *
 * @typedef {{type: string, conversation_id: string, seq: number, unread: number, unread_more: boolean, mentions: number,
 *   message?: {id: string, title: string, sender: string, sender_name: string, kind: string, preview: string, created_at: string}}} PushPayload
 * @typedef {{conversation_id: string, seq: number, unread: number}} Facts
 * @typedef {{data: Facts | null, tag: string, close(): void}} Shown
 * @typedef {{url: string, visibilityState: string, focused: boolean, focus(): Promise<Page>, navigate(url: string): Promise<Page | null>,
 *   postMessage(message: unknown, transfer?: unknown[]): void}} Page
 * @typedef {{endpoint: string, options: unknown, toJSON(): unknown}} Subscription
 * @typedef {{scope: string, showNotification(title: string, options: Record<string, unknown>): Promise<void>,
 *   getNotifications(filter?: {tag?: string}): Promise<Shown[]>, pushManager: {subscribe(options: unknown): Promise<Subscription>}}} Registration
 * @typedef {{waitUntil(done: Promise<unknown>): void}} Extendable
 * @typedef {{
 *   location: {href: string},
 *   navigator: {language: string, setAppBadge?: (count: number) => Promise<void>, clearAppBadge?: () => Promise<void>},
 *   registration: Registration,
 *   clients: {matchAll(options: unknown): Promise<Page[]>, openWindow(url: string): Promise<Page | null>, claim(): Promise<void>},
 *   skipWaiting(): Promise<void>,
 *   addEventListener(type: string, listener: (event: any) => void): void,
 * }} Scope
 */

const scope = /** @type {Scope} */ (/** @type {unknown} */ (self));

/** How long a page may take to say that it opens a conversation by itself, in ms. */
const ANSWER_WITHIN_MS = 500;
const ICON = 'icons/seqline-192.png';

const TEXTS = {
  en: {
    title: 'New message',
    unread: (/** @type {string} */ count) => (count === '1' ? '1 unread message' : `${count} unread messages`),
    more: (/** @type {string} */ count) => `${count} unread`,
    image: 'Picture',
    share: 'Shared something',
    named: 'You were mentioned',
  },
  zh: {
    title: '新消息',
    unread: (/** @type {string} */ count) => `${count} 条未读消息`,
    more: (/** @type {string} */ count) => `${count} 条未读`,
    image: '图片',
    share: '分享',
    named: '有人提到了你',
  },
};

function texts() {
  const wanted = new URL(scope.location.href).searchParams.get('lang') ?? scope.navigator.language ?? 'en';
  return wanted.toLowerCase().startsWith('zh') ? TEXTS.zh : TEXTS.en;
}

/** Somebody's words among ours: whatever direction they run in, ours stay in place. @param {string} words */
const isolated = (words) => `\u2068${words}\u2069`;

/** @param {string} conversation */
const tagOf = (conversation) => `seqline:${conversation}`;

/** @param {string} conversation */
function addressOf(conversation) {
  const address = new URL(scope.registration.scope);
  address.search = new URLSearchParams({ c: conversation }).toString();
  return address.href;
}

/** @param {Page} page */
const conversationOf = (page) => new URL(page.url).searchParams.get('c');

/** Pages of ours, whether this worker controls them or not. @returns {Promise<Page[]>} */
async function pages() {
  const found = await scope.clients.matchAll({ type: 'window', includeUncontrolled: true });
  return found.filter((page) => page.url.startsWith(scope.registration.scope));
}

/** @param {unknown} value @returns {value is PushPayload} */
function isPayload(value) {
  const payload = /** @type {any} */ (value);
  return payload !== null && typeof payload === 'object' && payload.type === 'message' && typeof payload.conversation_id === 'string'
    && Number.isSafeInteger(payload.seq);
}

/** @param {PushPayload} payload */
function bodyOf(payload) {
  const words = texts();
  const count = `${payload.unread}${payload.unread_more ? '+' : ''}`;
  const { message } = payload;
  if (!message) {
    return payload.mentions > 0 ? `${words.named} · ${words.unread(count)}` : words.unread(count);
  }
  const kind = message.kind === 'image' ? words.image : message.kind === 'share' ? words.share : '';
  const said = [kind && `[${kind}]`, message.preview && isolated(message.preview)].filter(Boolean).join(' ');
  // In a pair's conversation the title names the sender already.
  const line = message.title === message.sender_name ? said : `${isolated(message.sender_name)}: ${said}`;
  return payload.unread > 1 ? `${line}\n${words.more(count)}` : line;
}

/** Shows one notification for a conversation, in place of the one before. @param {PushPayload} payload */
async function show(payload) {
  const tag = tagOf(payload.conversation_id);
  const before = await scope.registration.getNotifications({ tag });
  // Push services may deliver in another order than they were asked to.
  if (before.some((shown) => (shown.data?.seq ?? 0) > payload.seq)) return;
  await scope.registration.showNotification(payload.message ? payload.message.title : texts().title, {
    body: bodyOf(payload),
    tag,
    renotify: true,
    icon: new URL(ICON, scope.registration.scope).href,
    timestamp: payload.message ? Date.parse(payload.message.created_at) : Date.now(),
    data: { conversation_id: payload.conversation_id, seq: payload.seq, unread: payload.unread },
  });
}

/** The number on the icon: what the notifications that are shown stand for. */
async function count() {
  const shown = await scope.registration.getNotifications();
  const unread = shown.reduce((sum, one) => sum + (one.data?.unread ?? 0), 0);
  // Not everywhere, and never a reason to fail.
  await (unread > 0 ? scope.navigator.setAppBadge?.(unread) : scope.navigator.clearAppBadge?.())?.catch(() => {});
}

/** @param {{json(): unknown} | null} data */
async function pushed(data) {
  let payload = null;
  try {
    payload = data?.json();
  } catch {
    // Not ours; the browser still wants to see a notification.
  }
  if (!isPayload(payload)) {
    await scope.registration.showNotification(texts().title, { tag: 'seqline', data: null });
    return;
  }
  const open = await pages();
  open.forEach((page) => page.postMessage({ type: 'seqline:pushed', payload }));
  const { conversation_id } = payload;
  if (open.some((page) => page.visibilityState === 'visible' && conversationOf(page) === conversation_id)) return;
  await show(payload);
  await count();
}

/** Whether a page opens a conversation by itself. @param {Page} page @param {string} conversation @returns {Promise<boolean>} */
function opensItself(page, conversation) {
  return new Promise((resolve) => {
    const channel = new MessageChannel();
    /** @param {boolean} answered */
    const settle = (answered) => {
      clearTimeout(late);
      channel.port1.close();
      resolve(answered);
    };
    const late = setTimeout(() => settle(false), ANSWER_WITHIN_MS);
    channel.port1.onmessage = () => settle(true);
    page.postMessage({ type: 'seqline:open', conversation_id: conversation }, [channel.port2]);
  });
}

/** Brings a conversation to the front: in the page that shows it, else in one that is there, else in a new one. @param {string | undefined} conversation */
async function open(conversation) {
  const address = conversation === undefined ? scope.registration.scope : addressOf(conversation);
  const found = await pages();
  const page = found.find((one) => conversationOf(one) === conversation) ?? found.find((one) => one.focused) ?? found[0];
  try {
    if (page) {
      await page.focus();
      if (conversation === undefined || conversationOf(page) === conversation || (await opensItself(page, conversation))) return;
      if (await page.navigate(address)) return;
    }
  } catch {
    // A page that this worker does not control cannot be led anywhere.
  }
  await scope.clients.openWindow(address);
}

/** @param {(one: Shown) => boolean} which */
async function close(which) {
  for (const shown of await scope.registration.getNotifications()) if (which(shown)) shown.close();
  await count();
}

/** @param {Subscription | null | undefined} old @param {Subscription | null | undefined} made */
async function subscriptionChanged(old, made) {
  let subscription = made ?? null;
  if (!subscription && old) {
    try {
      subscription = await scope.registration.pushManager.subscribe(old.options);
    } catch {
      // Permission was taken away: there is none any more.
    }
  }
  const message = { type: 'seqline:subscription', subscription: subscription?.toJSON() ?? null, old_endpoint: old?.endpoint ?? null };
  (await pages()).forEach((page) => page.postMessage(message));
}

/** @param {string} type @param {(event: any) => Promise<unknown>} work */
const on = (type, work) => scope.addEventListener(type, (/** @type {Extendable} */ event) => event.waitUntil(work(event)));

on('install', () => scope.skipWaiting());
on('activate', () => scope.clients.claim());
on('push', (event) => pushed(event.data));
on('notificationclick', async (event) => {
  event.notification.close();
  await open(event.notification.data?.conversation_id);
  await count();
});
on('pushsubscriptionchange', (event) => subscriptionChanged(event.oldSubscription, event.newSubscription));
on('message', async (event) => {
  const { type, conversation_id, seq } = event.data ?? {};
  if (type === 'seqline:read') await close((one) => one.data?.conversation_id === conversation_id && (one.data?.seq ?? 0) <= seq);
  if (type === 'seqline:clear') await close(() => true);
});
