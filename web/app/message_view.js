/**
 * One entry of a conversation as a row: a message, one that is on its way, what the timeline says, a hole that is being filled.
 */

import { avatar, fill, h, icon, iconButton, isolated } from './element.js';
import { inWords } from './errors.js';
import { clockTime, fullTime } from './format.js';
import { bodyOf, shareCard } from './message_body.js';
import { happened } from './summary.js';
import { t, tn } from './words.js';

/** @typedef {import('./types.js').Message} Message */
/** @typedef {import('./types.js').Entry} Entry */
/** @typedef {import('./types.js').Page} Page */
/**
 * @typedef {object} RowContext what a row needs to know beside its entry
 * @property {Page} page
 * @property {boolean} first whether it begins a run of one sender
 * @property {boolean} last whether it ends one
 * @property {boolean} group whether names are shown
 * @property {string | null} receipt what is said below it of who has read it
 * @property {(button: HTMLElement, message: Message) => void} onMore
 * @property {(button: HTMLElement, message: Message) => void} onReact
 * @property {(message: Message) => void} onReply
 * @property {(message: Message, emoji: string, on: boolean) => void} onToggle
 * @property {(seq: number) => void} onQuote
 * @property {(message: Message) => void} onReceipt
 * @property {(clientId: string) => void} onRetry
 * @property {(clientId: string) => void} onDiscard
 * @property {(ids: string[]) => import('./types.js').MediaItem[]} mediaOf what is known of pictures on their way
 * @property {(seq: number) => Message | undefined} find
 */

/** What a row is known by; a message keeps the row of the entry that was on its way. @param {Entry} entry @param {string | null} me */
export function keyOf(entry, me) {
  if (entry.kind === 'pending') return `c:${entry.clientId}`;
  if (entry.kind === 'gap') return `g:${entry.from}`;
  const { message } = entry;
  return message.client_id && message.sender === me ? `c:${message.client_id}` : `m:${entry.seq}`;
}

/** @param {Entry} entry @param {RowContext} context */
export function rowSignature(entry, context) {
  const { first, last, receipt, page } = context;
  const frame = [first, last, receipt, page.people.version, context.group];
  if (entry.kind === 'message') {
    const { message: m } = entry;
    return JSON.stringify([m.seq, m.rev, m.edited_at, m.deleted_at, m.body, m.reactions, m.reply_to, m.share, frame]);
  }
  return entry.kind === 'pending' ? JSON.stringify([entry.state, entry.draft, entry.error?.code, frame]) : JSON.stringify([entry, frame]);
}

/** @param {HTMLElement} row @param {Entry} entry @param {RowContext} context */
export function fillRow(row, entry, context) {
  row.removeAttribute('data-seq');
  row.removeAttribute('aria-label');
  if (entry.kind === 'gap') return gapRow(row, entry);
  if (entry.kind === 'pending') return pendingRow(row, entry, context);
  row.dataset.seq = String(entry.seq);
  if (entry.message.kind === 'system') {
    row.className = 'entry happening';
    row.dataset.testid = 'happening';
    return fill(row, h('span', null, happened(entry.message, context.page.people, context.page.chat.me)));
  }
  return messageRow(row, entry.message, context);
}

/** @param {HTMLElement} row @param {import('./types.js').GapEntry} entry */
function gapRow(row, entry) {
  row.className = 'entry happening';
  row.dataset.testid = 'gap';
  fill(row, h('span', null, tn('missing', entry.to - entry.from + 1)));
}

/** @param {HTMLElement} row @param {boolean} own @param {RowContext} context @param {boolean} pending */
function frame(row, own, context, pending) {
  const words = ['entry', 'message', own ? 'own' : 'other'];
  if (context.first) words.push('first');
  if (context.last) words.push('last');
  if (pending) words.push('pending');
  row.className = words.join(' ');
}

/** @param {HTMLElement} row @param {Message} message @param {RowContext} context */
function messageRow(row, message, context) {
  const { page } = context;
  const own = message.sender === page.chat.me;
  const name = own ? t('you') : page.people.name(message.sender);
  frame(row, own, context, false);
  row.dataset.testid = 'message';
  row.setAttribute('aria-label', t('message_from', { name, time: fullTime(message.created_at) }));
  const gone = Boolean(message.deleted_at);
  const bubble = h(
    'div',
    { class: `bubble${gone ? ' gone' : ''}` },
    context.group && !own && context.first ? h('div', { class: 'sender' }, isolated(name)) : null,
    gone ? h('div', { class: 'words' }, t('deleted_message')) : content(message, context, name),
    h(
      'div',
      { class: 'meta' },
      message.edited_at && !gone ? h('span', null, t('edited')) : null,
      h('time', { datetime: message.created_at, title: fullTime(message.created_at) }, clockTime(message.created_at)),
    ),
  );
  fill(
    row,
    context.group && !own ? (context.last ? avatar(message.sender, name, true) : h('span', { class: 'avatar-place' })) : null,
    h('div', { class: 'bubble-line' }, bubble, gone ? null : toolbar(message, context)),
    message.reactions.length > 0 ? reactions(message, context) : null,
    context.receipt ? receipt(message, context, context.receipt) : null,
  );
}

/** @param {Message} message @param {RowContext} context @param {string} name */
function content(message, context, name) {
  return [
    message.reply_to ? quote(message.reply_to, context) : null,
    message.share ? shareCard(message.share) : null,
    ...(message.body || message.media.length > 0 ? bodyOf(context.page, message.body, message.media, t('picture_of', { name })) : []),
  ];
}

/** @param {import('./types.js').Quote} quoted @param {RowContext} context */
function quote(quoted, context) {
  if (quoted.hidden) return h('div', { class: 'quote' }, t('quote_hidden'));
  const { page } = context;
  const sender = quoted.sender === page.chat.me ? t('you') : page.people.name(quoted.sender ?? '');
  const words = quoted.deleted ? t('quote_gone') : quoted.preview?.replace(/!\[img:[^\]]+\]/g, ' ').trim() || t('a_picture');
  return h(
    'button',
    { type: 'button', class: 'quote', 'data-testid': 'quote', title: t('quote_jump'), on: { click: () => context.onQuote(quoted.seq) } },
    h('strong', null, isolated(sender)),
    h('span', { dir: 'auto' }, words),
  );
}

/** @param {Message} message @param {RowContext} context */
function toolbar(message, context) {
  /** @type {HTMLButtonElement} */
  const react = iconButton('smile', t('react'), () => context.onReact(react, message), { 'data-testid': 'react', 'aria-haspopup': 'menu', tabindex: '-1' });
  /** @type {HTMLButtonElement} */
  const more = iconButton('more', t('message_options'), () => context.onMore(more, message), { 'data-testid': 'more', 'aria-haspopup': 'menu', tabindex: '-1' });
  const reply = iconButton('reply', t('reply'), () => context.onReply(message), { 'data-testid': 'reply', tabindex: '-1', class: 'wide-only' });
  return h('div', { class: 'tools' }, h('span', { class: 'wide-only' }, react), reply, more);
}

/** @param {Message} message @param {RowContext} context */
function reactions(message, context) {
  const shown = message.reactions.map((one) =>
    h(
      'button',
      {
        type: 'button', class: 'reaction', 'aria-pressed': String(one.me === true), 'data-testid': 'reaction',
        'aria-label': tn('reactions', one.count, { emoji: one.emoji }), on: { click: () => context.onToggle(message, one.emoji, one.me !== true) },
      },
      one.emoji, h('span', { 'aria-hidden': 'true' }, String(one.count)),
    ),
  );
  return h('div', { class: 'reactions' }, shown);
}

/** @param {Message} message @param {RowContext} context @param {string} text */
function receipt(message, context, text) {
  return h('button', { type: 'button', class: 'receipt', 'data-testid': 'receipt', on: { click: () => context.onReceipt(message) } }, icon('check'), text);
}

/** @param {HTMLElement} row @param {import('./types.js').PendingEntry} entry @param {RowContext} context */
function pendingRow(row, entry, context) {
  const { draft, state, clientId } = entry;
  frame(row, true, context, true);
  row.dataset.testid = 'pending';
  row.dataset.state = state;
  const quoted = draft.reply_to === undefined ? undefined : context.find(draft.reply_to);
  const failed = state === 'failed';
  const media = context.mediaOf(draft.media ?? []);
  fill(
    row,
    h(
      'div',
      { class: 'bubble-line' },
      h(
        'div',
        { class: 'bubble' },
        quoted ? quote({ seq: quoted.seq, sender: quoted.sender, preview: quoted.body.slice(0, 120) }, context) : null,
        bodyOf(context.page, draft.body ?? '', media, t('a_picture')),
        h('div', { class: 'meta' }, failed ? null : h('span', { role: 'img', 'aria-label': t('sending') }, icon('clock'))),
      ),
    ),
    failed
      ? h(
          'div',
          { class: 'failed', role: 'alert' },
          icon('warning'),
          h('span', null, t('not_sent'), entry.error ? ` · ${inWords(entry.error)}` : ''),
          h('button', { type: 'button', class: 'link-button', 'data-testid': 'retry', on: { click: () => context.onRetry(clientId) } }, t('retry')),
          h('button', { type: 'button', class: 'link-button', 'data-testid': 'discard', on: { click: () => context.onDiscard(clientId) } }, t('discard')),
        )
      : null,
  );
}
