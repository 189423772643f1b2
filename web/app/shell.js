/**
 * The page once somebody is signed in: the list on one side, a conversation on the other, the address in step with both.
 */

import { ChatView } from './chat_view.js';
import { debugPanel } from './debug_panel.js';
import { fill, h, iconButton } from './element.js';
import { ListView } from './list_view.js';
import { openNewConversation } from './new_conversation.js';
import { watchNotifications, workerAddress } from './notifications.js';
import { People } from './people.js';
import { listen, speak } from './spoken.js';
import { openSettings } from './settings_panel.js';
import { locale, t, tn } from './words.js';

/** @typedef {import('./types.js').Chat} Chat */

/**
 * @param {HTMLElement} root
 * @param {Chat} chat
 * @param {{ onSignOut: (() => void) | null }} options
 */
export function mountShell(root, chat, options) {
  document.documentElement.lang = locale();
  /** @type {ChatView | null} */
  let view = null;
  /** @type {ReturnType<typeof debugPanel> | null} */
  let debug = null;
  const people = new People(chat);
  /** @type {import('./types.js').Page} */
  const page = { chat, people, open: (id, seq) => go(id, seq), left: (id) => view?.id === id && close() };
  const list = new ListView(page);
  // On a phone the list and its line are out of sight while one reads: there is a second one above the messages.
  const lines = [connectionLine(() => chat.reconnect()), connectionLine(() => chat.reconnect())];
  const [connection, above] = lines.map((line) => line.element);
  connection?.setAttribute('data-testid', 'connection');
  const main = h('main', { class: 'main' });
  const shell = h(
    'div',
    { class: 'shell' },
    h(
      'div',
      { class: 'sidebar' },
      h(
        'header',
        { class: 'sidebar-head' },
        h('h1', null, t('conversations')),
        iconButton('plus', t('new_conversation'), () => openNewConversation(page), { 'data-testid': 'new' }),
        iconButton('settings', t('settings'), () => openSettings(page, { onLanguage: remount, onSignOut: options.onSignOut, onDebug: toggleDebug }), { 'data-testid': 'settings' }),
      ),
      connection,
      list.element,
    ),
    main,
  );
  fill(root, shell);
  listen();

  /** @param {string} id @param {number} [seq] */
  function go(id, seq) {
    const query = new URLSearchParams(location.search);
    if (query.get('c') !== id) {
      query.set('c', id);
      history.pushState({ inside: true }, '', `?${query}`);
    }
    show(id, seq);
  }

  function close() {
    const query = new URLSearchParams(location.search);
    query.delete('c');
    history.pushState({ inside: true }, '', query.size > 0 ? `?${query}` : location.pathname);
    show(null);
  }

  /** To where one came from. */
  function back() {
    if (history.state?.inside) history.back();
    else close();
  }

  /** @param {string | null} id @param {number} [seq] */
  function show(id, seq) {
    shell.dataset.view = id ? 'chat' : 'list';
    list.setCurrent(id);
    const inside = main.contains(document.activeElement);
    const before = view?.id;
    if (id && view?.id === id) {
      if (seq !== undefined) view.show(seq);
      return;
    }
    view?.destroy();
    view = null;
    if (!id) {
      fill(main, h('div', { class: 'empty' }, h('img', { src: '/icons/seqline.svg', alt: '' }), h('strong', null, t('nothing_open')), t('nothing_open_why')));
      if (inside && before) list.enter(before);
      return;
    }
    view = new ChatView(page, id, { onBack: back });
    fill(main, above, view.element);
    void view.open(seq);
  }

  function fromAddress() {
    show(new URLSearchParams(location.search).get('c'));
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let countdown;
  /** What was read out last: when the state changes, and not every second. */
  let told = '';
  function showState() {
    clearTimeout(countdown);
    const { phase, retryAt } = chat.state;
    const left = retryAt ? Math.ceil((new Date(retryAt).getTime() - Date.now()) / 1_000) : 0;
    const words = phase === 'waiting' && left > 0 ? t('waiting_until', { n: left }) : t(phase === 'signed-out' ? 'signed_out' : phase);
    for (const line of lines) line.show(phase, words);
    const name = t(phase === 'signed-out' ? 'signed_out' : phase);
    if (name !== told) {
      speak((told = name));
      // What failed while there was no connection is not left to a button.
      if (phase === 'live') {
        list.again();
        view?.again();
      }
    }
    if (phase === 'waiting' && left > 0) countdown = setTimeout(showState, 1_000);
  }

  function showBadge() {
    const unread = chat.badge?.unread ?? 0;
    document.title = unread > 0 ? `(${unread}) ${t('app')} — ${tn('unread', unread)}` : t('app');
  }

  function toggleDebug() {
    if (debug?.element.isConnected) {
      debug.destroy();
      debug = null;
    } else {
      debug = debugPanel(chat);
      shell.append(debug.element);
    }
  }

  /** @param {KeyboardEvent} event */
  function onKey(event) {
    if (event.isComposing) return;
    // On some keyboards Ctrl and Alt together are the key that writes a letter with a stroke.
    if (event.ctrlKey && event.altKey && event.code === 'KeyD' && !event.getModifierState('AltGraph')) toggleDebug();
    else if (event.key === 'Escape' && !document.querySelector('dialog[open], .menu') && view && matchMedia('(max-width: 700px)').matches) back();
    else return;
    event.preventDefault();
  }

  /** A file that is dropped beside the messages would be opened in place of the page. @param {DragEvent} event */
  function onDrag(event) {
    if (event.defaultPrevented || event.dataTransfer?.types.includes('Files') !== true) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = 'none';
  }

  function destroy() {
    clearTimeout(countdown);
    for (const off of offs) off();
    debug?.destroy();
    view?.destroy();
    list.destroy();
    // An open dialog would keep what comes next out of reach.
    for (const dialog of document.querySelectorAll('dialog[open]')) /** @type {HTMLDialogElement} */ (dialog).close();
    removeEventListener('popstate', fromAddress);
    removeEventListener('keydown', onKey);
    removeEventListener('dragover', onDrag);
    removeEventListener('drop', onDrag);
  }

  /** In another language everything is made anew; the connection and what was written stay. */
  function remount() {
    destroy();
    // What is shown while no page looks speaks the same language.
    chat.push.worker = workerAddress();
    void chat.push.restore().catch(() => {});
    end = mountShell(root, chat, options).destroy;
  }

  let end = destroy;
  const offs = [chat.on('state', showState), chat.on('badge', showBadge), watchNotifications(chat, (id) => go(id))];
  addEventListener('popstate', fromAddress);
  addEventListener('keydown', onKey);
  addEventListener('dragover', onDrag);
  addEventListener('drop', onDrag);
  showState();
  showBadge();
  fromAddress();
  if (new URLSearchParams(location.search).has('debug')) toggleDebug();
  return { destroy: () => end() };
}

/**
 * Where the connection stands. Its button stays the same one while the seconds are counted, so that it can be pressed and keeps the focus.
 * @param {() => void} onAgain
 */
function connectionLine(onAgain) {
  const words = h('span');
  const again = h('button', { type: 'button', class: 'link-button', 'data-testid': 'try-now', on: { click: onAgain } }, t('try_now'));
  const element = h('div', { class: 'connection' }, h('span', { class: 'dot' }), words, again);
  return {
    element,
    /** @param {string} phase @param {string} text */
    show(phase, text) {
      element.dataset.phase = phase;
      words.textContent = text;
      again.hidden = phase !== 'waiting';
    },
  };
}
