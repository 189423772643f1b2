/**
 * Dialogs and menus. Dialogs are the browser's own, which keeps the focus inside, closes on Esc and gives the focus back.
 */

import { h, icon, iconButton } from './element.js';
import { t } from './words.js';

/**
 * @param {import('./element.js').Child | import('./element.js').Child[]} title
 * @param {(close: () => void) => (Node | null)[]} content
 * @param {{ testId?: string, onClose?: () => void }} [options]
 */
export function openDialog(title, content, options = {}) {
  const heading = h('h2', { id: `dialog-${(count += 1)}`, dir: 'auto' }, title);
  const dialog = h('dialog', { class: 'dialog', 'aria-labelledby': heading.id, 'data-testid': options.testId });
  const close = () => dialog.close();
  dialog.append(h('header', null, heading, iconButton('close', t('close'), close)), h('div', { class: 'dialog-body' }, content(close)));
  dialog.addEventListener('close', () => {
    if (dialog.contains(notices)) document.body.append(notices);
    dialog.remove();
    options.onClose?.();
  });
  // A press beside it; the dialog's own padding belongs to its children.
  dialog.addEventListener('pointerdown', (event) => {
    if (event.target === dialog) close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return { dialog, close };
}

let count = 0;

/**
 * @param {import('./element.js').Child | import('./element.js').Child[]} question
 * @param {string} yes
 * @param {boolean} [danger]
 * @returns {Promise<boolean>}
 */
export function confirmed(question, yes, danger = true) {
  return new Promise((resolve) => {
    let answer = false;
    openDialog(
      question,
      (close) => [
        h(
          'div',
          { class: 'dialog-actions' },
          h('button', { type: 'button', class: 'button', on: { click: close } }, t('cancel')),
          h(
            'button',
            {
              type: 'button',
              class: `button ${danger ? 'danger' : 'primary'}`,
              'data-testid': 'confirm',
              on: {
                click: () => {
                  answer = true;
                  close();
                },
              },
            },
            yes,
          ),
        ),
      ],
      { testId: 'confirm-dialog', onClose: () => resolve(answer) },
    );
  });
}

/** @typedef {{ label: string, icon: string, action: () => void, danger?: boolean, id: string }} MenuItem */

/** @type {(() => void) | null} */
let closeOpen = null;

/**
 * @param {HTMLElement} at what it belongs to
 * @param {MenuItem[]} items
 * @param {Node | null} [above] something above the items, e.g. a row of emoji
 */
export function openMenu(at, items, above) {
  closeMenu();
  // The button may be drawn anew while the menu is open; its row stays.
  const around = at.closest('article');
  const buttons = items.map((item) =>
    h(
      'button',
      {
        type: 'button',
        role: 'menuitem',
        class: item.danger ? 'danger' : '',
        'data-testid': `menu-${item.id}`,
        on: {
          click: () => {
            close(true);
            item.action();
          },
        },
      },
      icon(item.icon),
      item.label,
    ),
  );
  const menu = h('div', { class: 'menu', role: 'menu', 'data-testid': 'menu' }, above ?? null, buttons);
  /** @param {boolean} back whether the focus goes back */
  const close = (back) => {
    closeOpen = null;
    menu.remove();
    document.removeEventListener('pointerdown', outside, true);
    removeEventListener('resize', away);
    at.setAttribute('aria-expanded', 'false');
    if (back) (at.isConnected ? at : around)?.focus({ preventScroll: true });
  };
  const away = () => close(false);
  /** @param {PointerEvent} event */
  const outside = (event) => {
    if (!menu.contains(/** @type {Node} */ (event.target))) close(false);
  };
  menu.addEventListener('keydown', (event) => {
    const all = /** @type {HTMLElement[]} */ ([...menu.querySelectorAll('button')]);
    const place = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step) all[(place + step + all.length) % all.length]?.focus();
    else if (event.key === 'Home') all[0]?.focus();
    else if (event.key === 'End') all.at(-1)?.focus();
    else if (event.key === 'Escape' || event.key === 'Tab') close(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  document.body.append(menu);
  place(menu, at.getBoundingClientRect());
  document.addEventListener('pointerdown', outside, true);
  addEventListener('resize', away);
  at.setAttribute('aria-expanded', 'true');
  (menu.querySelector('button') ?? menu).focus({ preventScroll: true });
  closeOpen = () => close(false);
  return () => close(true);
}

/** Closes the menu that is open: what it belongs to goes. */
export function closeMenu() {
  closeOpen?.();
}

/**
 * Below what it belongs to, or above where there is no room.
 * @param {HTMLElement} menu
 * @param {DOMRect} at
 */
function place(menu, at) {
  if (matchMedia('(max-width: 700px)').matches) return;
  const { offsetWidth: width, offsetHeight: height } = menu;
  const below = at.bottom + 6;
  const top = below + height > innerHeight - 8 ? Math.max(8, at.top - height - 6) : below;
  const left = Math.min(Math.max(8, at.right - width), innerWidth - width - 8);
  menu.style.top = `${top}px`;
  menu.style.left = `${left}px`;
}

const notices = h('div', { class: 'notices', role: 'status', 'aria-live': 'polite' });

/** A line that goes by itself, read out at once. @param {string} text @param {boolean} [wrong] */
export function notice(text, wrong) {
  // All that is not in the topmost dialog is behind it, for eyes and for screen readers.
  const place = [...document.querySelectorAll('dialog[open]')].at(-1) ?? document.body;
  if (notices.parentNode !== place) place.append(notices);
  const line = h('div', { class: wrong ? 'notice wrong' : 'notice', 'data-testid': 'notice' }, text);
  notices.append(line);
  setTimeout(() => line.remove(), wrong ? 6_000 : 2_500);
}
