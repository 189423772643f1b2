// The service worker, in a world that is made for it: what it shows, what it leaves out, and what a click opens.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import vm from 'node:vm';

const SOURCE = readFileSync(new URL('../sw.js', import.meta.url), 'utf8');
const SCOPE = 'https://chat.app/';

/** A service worker that was just started, with these pages open. */
function world({ pages = [], language = 'en-GB', href = `${SCOPE}sw.js` } = {}) {
  const listeners = new Map();
  const shown = [];
  const opened = [];
  let badge = null;
  const windows = pages.map(({ answers = false, ...page }) => ({
    visibilityState: 'visible',
    focused: false,
    told: [],
    navigated: [],
    async focus() { this.focused = true; return this; },
    async navigate(url) { this.navigated.push(url); return this; },
    postMessage(message, transfer) {
      this.told.push(message);
      if (answers && transfer) transfer[0].postMessage('yes');
    },
    ...page,
  }));
  const registration = {
    scope: SCOPE,
    async showNotification(title, options) {
      const at = shown.findIndex((one) => one.tag === options.tag);
      if (at >= 0) shown.splice(at, 1);
      const one = { title, ...options, close() { shown.splice(shown.indexOf(one), 1); } };
      shown.push(one);
    },
    getNotifications: async (filter) => shown.filter((one) => !filter?.tag || one.tag === filter.tag),
    pushManager: { subscribe: async (options) => ({ endpoint: 'https://push.app/new', options, toJSON: () => ({ endpoint: 'https://push.app/new' }) }) },
  };
  const self = {
    location: { href },
    navigator: { language, setAppBadge: async (count) => { badge = count; }, clearAppBadge: async () => { badge = null; } },
    registration,
    clients: { matchAll: async () => windows, openWindow: async (url) => { opened.push(url); return null; }, claim: async () => {} },
    skipWaiting: async () => {},
    addEventListener: (type, listener) => listeners.set(type, listener),
  };
  vm.runInNewContext(SOURCE, { self, URL, URLSearchParams, MessageChannel, setTimeout, clearTimeout, Date });
  const fire = async (type, event = {}) => {
    const waits = [];
    listeners.get(type)({ ...event, waitUntil: (done) => waits.push(done) });
    await Promise.all(waits);
  };
  return { windows, shown, opened, fire, push: (payload) => fire('push', { data: { json: () => payload } }), badge: () => badge };
}

const payload = (more = {}) => ({ type: 'message', conversation_id: 'group:1', seq: 7, unread: 1, unread_more: false, mentions: 0, ...more });
const message = (more = {}) => ({
  id: '0', title: 'Lunch', sender: 'ann', sender_name: 'Ann', kind: 'text', preview: 'At one?', created_at: '2026-12-01T00:00:00.000Z', ...more,
});

test('a push is shown, one for each conversation, and counted', async () => {
  const sw = world();
  await sw.push(payload({ message: message() }));
  assert.equal(sw.shown[0].title, 'Lunch');
  assert.equal(sw.shown[0].body, '\u2068Ann\u2069: \u2068At one?\u2069');
  assert.equal(sw.badge(), 1);
  await sw.push(payload({ seq: 9, unread: 3, message: message({ preview: 'Or two?' }) }));
  assert.equal(sw.shown.length, 1);
  assert.match(sw.shown[0].body, /Or two\?\u2069\n3 unread/);
  assert.equal(sw.shown[0].renotify, true);
  await sw.push(payload({ seq: 8, message: message({ preview: 'late' }) }));
  assert.match(sw.shown[0].body, /Or two/, 'an older one changes nothing');
  await sw.push(payload({ conversation_id: 'group:2', unread: 1000, unread_more: true, message: message({ preview: '', kind: 'image' }) }));
  assert.equal(sw.shown.length, 2);
  assert.match(sw.shown[1].body, /\[Picture\]\n1000\+ unread/);
  assert.equal(sw.badge(), 1003);
  await sw.push(payload({ conversation_id: 'single:1', message: message({ title: 'Ann' }) }));
  assert.equal(sw.shown[2].body, '\u2068At one?\u2069');
});

test('without a preview it says that something came, in the language of the browser or of the page', async () => {
  for (const [options, title, body] of [
    [{}, 'New message', '2 unread messages'],
    [{ language: 'zh-CN' }, '新消息', '2 条未读消息'],
    [{ href: `${SCOPE}sw.js?lang=zh` }, '新消息', '2 条未读消息'],
    [{ language: 'zh-CN', href: `${SCOPE}sw.js?lang=en` }, 'New message', '2 unread messages'],
  ]) {
    const sw = world(options);
    await sw.push(payload({ unread: 2 }));
    assert.deepEqual([sw.shown[0].title, sw.shown[0].body], [title, body]);
  }
  const sw = world();
  await sw.push(payload({ mentions: 1 }));
  assert.equal(sw.shown[0].body, 'You were mentioned · 1 unread message');
});

test('what somebody is looking at is not shown, and pages are told', async () => {
  const looking = world({ pages: [{ url: `${SCOPE}?c=group%3A1` }] });
  await looking.push(payload());
  assert.equal(looking.shown.length, 0);
  assert.equal(looking.windows[0].told[0].type, 'seqline:pushed');
  for (const page of [{ url: `${SCOPE}?c=group%3A2` }, { url: `${SCOPE}?c=group%3A1`, visibilityState: 'hidden' }, { url: SCOPE }]) {
    const elsewhere = world({ pages: [page] });
    await elsewhere.push(payload());
    assert.equal(elsewhere.shown.length, 1, page.url);
  }
});

test('what cannot be read still makes a notification', async () => {
  for (const json of [() => { throw new Error('no JSON'); }, () => null, () => ({ type: 'other' }), () => 'text']) {
    const sw = world();
    await sw.fire('push', { data: { json } });
    assert.equal(sw.shown.length, 1);
  }
  const sw = world();
  await sw.fire('push', { data: null });
  assert.equal(sw.shown.length, 1);
});

test('a click opens the conversation where it can be opened best', async () => {
  const click = async (pages) => {
    const sw = world({ pages });
    await sw.push(payload({ conversation_id: 'system:a b', seq: 1 }));
    await sw.fire('notificationclick', { notification: sw.shown[0] });
    assert.equal(sw.shown.length, 0);
    assert.equal(sw.badge(), null);
    return sw;
  };
  assert.deepEqual((await click([])).opened, [`${SCOPE}?c=system%3Aa+b`]);
  const there = await click([{ url: SCOPE }, { url: `${SCOPE}?c=system%3Aa%20b`, visibilityState: 'hidden' }]);
  assert.ok(there.windows[1].focused && !there.windows[0].focused && there.opened.length === 0);
  const helpful = await click([{ url: SCOPE, answers: true }]);
  assert.ok(helpful.windows[0].focused && helpful.windows[0].navigated.length === 0 && helpful.opened.length === 0);
  assert.deepEqual({ ...helpful.windows[0].told.at(-1) }, { type: 'seqline:open', conversation_id: 'system:a b' });
  assert.deepEqual((await click([{ url: SCOPE }])).windows[0].navigated, [`${SCOPE}?c=system%3Aa+b`]);
  const foreign = await click([{ url: SCOPE, navigate: async () => { throw new TypeError('not controlled'); } }]);
  assert.deepEqual(foreign.opened, [`${SCOPE}?c=system%3Aa+b`]);
  assert.deepEqual((await click([{ url: 'https://elsewhere.app/' }])).opened, [`${SCOPE}?c=system%3Aa+b`]);
});

test('what is read elsewhere goes, and so does everything when one signs out', async () => {
  const sw = world();
  await sw.push(payload());
  await sw.push(payload({ conversation_id: 'group:2' }));
  await sw.fire('message', { data: { type: 'seqline:read', conversation_id: 'group:1', seq: 6 } });
  assert.equal(sw.shown.length, 2);
  await sw.fire('message', { data: { type: 'seqline:read', conversation_id: 'group:1', seq: 7 } });
  assert.deepEqual(sw.shown.map((one) => one.data.conversation_id), ['group:2']);
  await sw.fire('message', { data: { type: 'seqline:clear' } });
  assert.equal(sw.shown.length, 0);
  await sw.fire('message', { data: null });
});

test('a changed subscription is made again and told', async () => {
  const sw = world({ pages: [{ url: SCOPE, visibilityState: 'hidden' }] });
  await sw.fire('pushsubscriptionchange', { oldSubscription: { endpoint: 'https://push.app/old', options: {}, toJSON: () => ({}) } });
  assert.deepEqual(JSON.parse(JSON.stringify(sw.windows[0].told)), [
    { type: 'seqline:subscription', subscription: { endpoint: 'https://push.app/new' }, old_endpoint: 'https://push.app/old' },
  ]);
  await sw.fire('install');
  await sw.fire('activate');
});
