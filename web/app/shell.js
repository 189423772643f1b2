/**
 * The page once somebody is signed in: the list on one side, a conversation on the other, the address in step with both.
 */

import { ChatView } from './chat_view.js';
import { debugPanel } from './debug_panel.js';
import { fill, h, iconButton } from './element.js';
import { ListView } from './list_view.js';
import { openNewConversation } from './new_conversation.js';
import { People } from './people.js';
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
  const connection = h('div', { class: 'connection', role: 'status', 'aria-live': 'polite', 'data-testid': 'connection' });
  // On a phone the list and its line are out of sight while one reads.
  const above = h('div', { class: 'connection', 'aria-hidden': 'true' });
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

  /** @param {string | null} id @param {number} [seq] */
  function show(id, seq) {
    shell.dataset.view = id ? 'chat' : 'list';
    list.setCurrent(id);
    if (id && view?.id === id) {
      if (seq !== undefined) view.show(seq);
      return;
    }
    view?.destroy();
    view = null;
    if (!id) {
      return fill(main, h('div', { class: 'empty' }, h('img', { src: '/icons/seqline.svg', alt: '' }), h('strong', null, t('nothing_open')), t('nothing_open_why')));
    }
    view = new ChatView(page, id, { onBack: () => (history.state?.inside ? history.back() : close()) });
    fill(main, above, view.element);
    void view.open(seq);
  }

  function fromAddress() {
    show(new URLSearchParams(location.search).get('c'));
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let countdown;
  function showState() {
    clearTimeout(countdown);
    const { phase, retryAt } = chat.state;
    const left = retryAt ? Math.ceil((new Date(retryAt).getTime() - Date.now()) / 1_000) : 0;
    const words = phase === 'waiting' && left > 0 ? t('waiting_until', { n: left }) : t(phase === 'signed-out' ? 'signed_out' : phase);
    const again = phase === 'waiting' ? h('button', { type: 'button', class: 'link-button' }, t('try_now')) : null;
    for (const place of [connection, above]) {
      place.dataset.phase = phase;
      const button = again?.cloneNode(true);
      button?.addEventListener('click', () => chat.reconnect());
      if (place.textContent !== words + (again?.textContent ?? '')) fill(place, h('span', { class: 'dot' }), h('span', null, words), button);
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
    if (event.ctrlKey && event.altKey && event.code === 'KeyD') toggleDebug();
    else if (event.key === 'Escape' && !document.querySelector('dialog[open], .menu') && view && matchMedia('(max-width: 700px)').matches) close();
    else return;
    event.preventDefault();
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
  }

  /** In another language everything is made anew; the connection and what was written stay. */
  function remount() {
    destroy();
    mountShell(root, chat, options);
  }

  const offs = [chat.on('state', showState), chat.on('badge', showBadge)];
  addEventListener('popstate', fromAddress);
  addEventListener('keydown', onKey);
  showState();
  showBadge();
  fromAddress();
  if (new URLSearchParams(location.search).has('debug')) toggleDebug();
  return { destroy };
}
