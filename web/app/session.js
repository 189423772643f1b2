/**
 * Where tokens come from. The page has no accounts of its own; the host application signs a token, and one of these brings it here:
 *
 * - `window.seqlineGetToken`, an async function `({ rejected }) => token`, which a host that serves this page with a script of its own sets
 *   before `main.js` runs; it is asked again when a token has expired or was refused;
 * - `#token=…` in the address, taken out of it at once, so that it gets neither into the history nor to any server;
 * - what was pasted into the sign-in form; kept, as the one above, for this tab alone;
 * - in `seqline dev`, `?as=NAME`: the demonstration signs one for whoever asks on this machine.
 */

import { forThisTab } from './kept.js';

/** @typedef {(asked: { rejected: string | null }) => Promise<string>} GetToken `rejected` is the token that is not accepted any more */

const KEPT = 'seqline.token';
const IN_ADDRESS = /(?:^#|&)token=([^&]+)/;

/** A token that must be asked of the person. */
export class SignInNeeded extends Error {
  /** @param {boolean} refused whether there was one that is not accepted any more */
  constructor(refused) {
    super('sign-in needed');
    this.refused = refused;
  }
}

/**
 * @param {URLSearchParams} query
 * @param {(refused: boolean) => void} onNeeded
 * @returns {GetToken | null} null when the person must be asked first
 */
export function tokenSource(query, onNeeded) {
  const hook = /** @type {{ seqlineGetToken?: GetToken }} */ (/** @type {unknown} */ (window)).seqlineGetToken;
  if (typeof hook === 'function') return (asked) => hook(asked);
  const wanted = query.get('as');
  if (wanted) return () => demoToken(wanted);
  const given = IN_ADDRESS.exec(location.hash)?.[1];
  if (given) {
    history.replaceState(history.state, '', location.pathname + location.search);
    keep(decoded(given));
  }
  if (!forThisTab.get(KEPT)) return null;
  return async ({ rejected }) => {
    const kept = forThisTab.get(KEPT);
    if (kept && kept !== rejected) return kept;
    forget();
    onNeeded(true);
    throw new SignInNeeded(true);
  };
}

/** Whether a token stands in the address: also a page that is open already may be given one. */
export function tokenInAddress() {
  return IN_ADDRESS.test(location.hash);
}

/** What somebody cut short is no token, and no reason to show nothing at all. @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param {string} token */
export function keep(token) {
  forThisTab.set(KEPT, token);
}

export function forget() {
  forThisTab.set(KEPT, null);
}

/** Whether this has the shape of a token. @param {string} text */
export function looksLikeToken(text) {
  return /^[\w-]+\.[\w-]+\.[\w-]+$/.test(text);
}

/** @param {string} user */
async function demoToken(user) {
  const answer = await fetch('/demo/token', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ user }),
  });
  if (!answer.ok) throw new Error(`no token: ${answer.status}`);
  return /** @type {{ token: string }} */ (await answer.json()).token;
}
