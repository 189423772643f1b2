/**
 * The page begins here: who is it, and what is shown.
 *
 * Addresses: `?c=ID` opens a conversation, `?debug` the panel under the hood, `?demo` two people side by side (only with `seqline dev`).
 * Where tokens come from stands in session.js.
 */

import { connect } from '../seqline.js';
import { mountDemo } from './demo.js';
import { told } from './errors.js';
import { endNotifications, workerAddress } from './notifications.js';
import { forget, tokenInAddress, tokenSource } from './session.js';
import { applyTheme } from './settings_panel.js';
import { mountShell } from './shell.js';
import { mountSignIn } from './sign_in.js';

const root = /** @type {HTMLElement} */ (document.getElementById('app'));
/** @type {(() => void) | null} */
let end = null;

applyTheme();
begin(false);
// A link with a token, followed in a tab where the page is open already, changes the address and loads nothing.
addEventListener('hashchange', () => {
  if (tokenInAddress()) begin(false);
});

/** @param {boolean} refused whether there was a token that is not accepted any more */
function begin(refused) {
  end?.();
  end = null;
  const query = new URLSearchParams(location.search);
  const names = query.get('demo');
  if (names !== null) return void mountDemo(root, names);
  const getToken = tokenSource(query, begin);
  if (!getToken) return mountSignIn(root, { refused, onToken: () => begin(false) });
  const demo = query.get('as');
  /** @type {import('./types.js').Chat} */
  const chat = connect({ getToken, worker: workerAddress(), ...(demo ? { device: `page-${demo}` } : {}) });
  const signOut = async () => {
    await endNotifications(chat);
    forget();
    begin(false);
  };
  const shell = mountShell(root, chat, { onSignOut: demo ? null : () => void signOut() });
  end = () => {
    shell.destroy();
    chat.close();
  };
  const peer = query.get('with');
  if (peer && !query.get('c')) void openWith(chat, peer);
}

/**
 * The demonstration begins in the conversation of its two people.
 * @param {import('./types.js').Chat} chat
 * @param {string} peer
 */
async function openWith(chat, peer) {
  const made = await told(chat.createConversation({ kind: 'single', peer }));
  if (!made) return;
  const query = new URLSearchParams(location.search);
  query.set('c', made.id);
  history.replaceState(history.state, '', `?${query}`);
  dispatchEvent(new PopStateEvent('popstate'));
}
