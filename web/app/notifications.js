/**
 * The page's side of what `/sw.js` shows: opens what was clicked there, takes away what has been read here, and ends it all with the session.
 */

import { currentLanguage } from './words.js';

/** @typedef {import('./types.js').Chat} Chat */

/** How long signing out waits for the gateway to forget this browser, and then for the browser to forget it, in milliseconds. */
const FORGET_WITHIN_MS = 3_000;

/** Address of the worker; it speaks the page's language. */
export function workerAddress() {
  return `/sw.js?lang=${currentLanguage()}`;
}

/** Absent where the page is not served over HTTPS. @returns {ServiceWorkerContainer | undefined} */
function workers() {
  return navigator.serviceWorker;
}

/** @param {unknown} message */
async function tell(message) {
  const registration = await workers()?.getRegistration();
  registration?.active?.postMessage(message);
}

/**
 * @param {Chat} chat
 * @param {(id: string) => void} open
 * @returns {() => void} ends it
 */
export function watchNotifications(chat, open) {
  /** @param {MessageEvent} event */
  const onMessage = ({ data, ports }) => {
    if (data?.type === 'seqline:open' && typeof data.conversation_id === 'string') {
      // Without an answer the worker would load the whole page anew.
      ports[0]?.postMessage(true);
      open(data.conversation_id);
    }
    if (data?.type === 'seqline:subscription') void chat.push.restore().catch(() => {});
    if (data?.type === 'seqline:pushed' && chat.state.phase !== 'live') chat.reconnect();
  };
  workers()?.addEventListener('message', onMessage);
  const off = chat.on('event', (/** @type {any} */ { type, conversation_id, data }) => {
    if (type === 'read.advanced' && data.user_id === chat.me) void tell({ type: 'seqline:read', conversation_id, seq: data.read_seq }).catch(() => {});
  });
  return () => {
    workers()?.removeEventListener('message', onMessage);
    off();
  };
}

/** Who comes next at this browser is not to see what is written to who was here. Takes a bounded time, whatever hangs. @param {Chat} chat */
export async function endNotifications(chat) {
  const late = new Promise((resolve) => setTimeout(resolve, FORGET_WITHIN_MS));
  const registration = await Promise.race([workers()?.getRegistration().catch(() => undefined), late]);
  if (!registration) return;
  await Promise.race([chat.push.disable().catch(() => {}), late]);
  const rest = async () => {
    // Where the gateway could not be told, the browser's own end of it goes all the same.
    const left = await registration.pushManager?.getSubscription().catch(() => null);
    await left?.unsubscribe().catch(() => {});
    await tell({ type: 'seqline:clear' }).catch(() => {});
  };
  await Promise.race([rest(), new Promise((resolve) => setTimeout(resolve, FORGET_WITHIN_MS))]);
}
