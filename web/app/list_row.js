/**
 * One conversation in the list.
 */

import { avatar, fill, h, icon, isolated } from './element.js';
import { fullTime, shortTime } from './format.js';
import { titleOf } from './people.js';
import { happened, inShort, typingWords } from './summary.js';
import { t, tn } from './words.js';

/** @typedef {import('./types.js').Summary} Summary */
/** @typedef {import('./types.js').Page} Page */

/**
 * @param {Page} page
 * @param {Summary} summary
 * @param {boolean} current
 */
export function signature(page, summary, current) {
  const last = summary.last_message;
  return JSON.stringify([
    summary.rev, summary.title, summary.display_name, summary.me, summary.typing, current, page.people.version,
    last?.seq, last?.rev, last?.deleted_at, last?.body, summary.updated_at, new Date().getDate(),
  ]);
}

/**
 * @param {Page} page
 * @param {Summary} summary
 * @param {boolean} current
 * @returns {HTMLLIElement}
 */
export function makeRow(page, summary, current) {
  const row = h('li', { role: 'option', tabindex: '-1', 'data-testid': 'conversation', 'data-id': summary.id });
  row.addEventListener('click', () => page.open(summary.id));
  updateRow(row, page, summary, current);
  return row;
}

/**
 * @param {HTMLLIElement} row
 * @param {Page} page
 * @param {Summary} summary
 * @param {boolean} current
 */
export function updateRow(row, page, summary, current) {
  const { me } = summary;
  const name = titleOf(summary, t('unnamed_group'));
  const unread = me?.unread ?? 0;
  const marked = me?.marked_unread === true && unread === 0;
  row.className = `row${unread > 0 || marked ? ' has-unread' : ''}`;
  row.setAttribute('aria-selected', String(current));
  const at = summary.last_message?.created_at ?? summary.updated_at;
  fill(
    row,
    avatar(summary.peer ?? summary.id, name),
    h(
      'div',
      null,
      h(
        'div',
        { class: 'row-line' },
        isolated(name, 'row-name'),
        me?.pinned ? h('span', { title: t('pinned') }, icon('pin'), h('span', { class: 'visually-hidden' }, t('pinned'))) : null,
        me?.muted ? h('span', { title: t('muted') }, icon('muted'), h('span', { class: 'visually-hidden' }, t('muted'))) : null,
        h('time', { class: 'row-time', datetime: at, title: fullTime(at) }, shortTime(at)),
      ),
      h('div', { class: 'row-line' }, lastLine(page, summary), unreadBadge(unread, me?.unread_more === true, marked, me?.muted === true)),
    ),
  );
}

/**
 * @param {Page} page
 * @param {Summary} summary
 */
function lastLine(page, summary) {
  const typing = (summary.typing ?? []).filter((user) => user !== page.chat.me);
  if (typing.length > 0) return h('span', { class: 'row-last typing' }, typingWords(typing, page.people));
  const last = summary.last_message;
  if (!last) return h('span', { class: 'row-last' }, t('nobody_yet'));
  if (last.kind === 'system') return h('span', { class: 'row-last' }, happened(last, page.people, page.chat.me));
  const prefix =
    last.sender === page.chat.me ? [t('you_prefix')] : summary.kind === 'group' ? [isolated(page.people.name(last.sender)), ': '] : [];
  return h('span', { class: 'row-last' }, prefix, isolated(inShort(last)));
}

/**
 * @param {number} unread
 * @param {boolean} more
 * @param {boolean} marked
 * @param {boolean} muted
 */
function unreadBadge(unread, more, marked, muted) {
  if (marked) return h('span', { class: `badge dot${muted ? ' muted' : ''}`, title: t('marked_unread'), role: 'img', 'aria-label': t('marked_unread') });
  if (unread === 0) return null;
  const shown = unread > 999 || more ? '999+' : String(unread);
  return h(
    'span',
    { class: `badge${muted ? ' muted' : ''}`, 'data-testid': 'unread' },
    h('span', { 'aria-hidden': 'true' }, shown),
    h('span', { class: 'visually-hidden' }, tn('unread', unread)),
  );
}
