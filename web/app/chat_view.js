/**
 * One conversation: its head, its messages, the field.
 */

import { Backoff } from '../client/backoff.js';
import { mediaOf } from './attachments.js';
import { Composer } from './composer.js';
import { closeMenu, notice } from './dialog.js';
import { avatar, fill, h, icon, iconButton, isolated } from './element.js';
import { inWords, told } from './errors.js';
import { openDetails } from './details.js';
import { chooseEmoji, openMessageMenu, showReaders } from './message_menu.js';
import { titleOf } from './people.js';
import { speak } from './spoken.js';
import { inShort, typingWords } from './summary.js';
import { TimelineView } from './timeline_view.js';
import { t, tn } from './words.js';

/** @typedef {import('./types.js').Message} Message */
/** @typedef {import('./types.js').Page} Page */

/** Pause after which it is asked who has read the newest message, in milliseconds. */
const READERS_AFTER_MS = 400;
/** Pause in which messages that come are read out as one, in milliseconds. */
const SPEAK_AFTER_MS = 700;

export class ChatView {
  /** @type {(() => void)[]} */
  #offs = [];
  /** @type {TimelineView | null} */
  #timeline = null;
  /** @type {Composer | null} */
  #composer = null;
  #gone = false;
  /** Who has read the newest own message. @type {{ seq: number, count: number } | null} */
  #receipt = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #readersTimer;
  /** What came and is to be read out. @type {Message[]} */
  #unspoken = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #speakTimer;
  /** A message that is to be shown once there are any. @type {number | undefined} */
  #wanted;
  #opening = false;
  /** It could not be opened, and may be later. */
  #failed = false;
  #tries = new Backoff({ baseMs: 1_000 });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #triesTimer;

  /**
   * @param {Page} page
   * @param {string} id
   * @param {{ onBack: () => void }} options
   */
  constructor(page, id, options) {
    this.page = page;
    this.id = id;
    this.conversation = page.chat.conversation(id);
    this.face = h('span');
    this.name = h('h2', { 'data-testid': 'title', tabindex: '-1' });
    this.under = h('p', { 'data-testid': 'typing' });
    this.details = iconButton('info', t('details'), () => openDetails(page, this.conversation, id), { 'data-testid': 'details', hidden: true });
    this.body = h('div', { class: 'chat-body' });
    this.foot = h('div', { class: 'chat-foot' });
    this.toEnd = h('button', { type: 'button', class: 'to-end', hidden: true, 'data-testid': 'to-end', on: { click: () => void told(this.#showEnd()) } });
    this.element = h(
      'section',
      { class: 'chat', 'aria-label': t('messages'), 'data-testid': 'chat', 'data-id': id },
      h('header', { class: 'chat-head' }, iconButton('back', t('back'), options.onBack, { class: 'back', 'data-testid': 'back' }), this.face, h('div', { class: 'chat-who' }, this.name, this.under), this.details),
      this.body,
      this.foot,
    );
    this.#acceptDrops();
    this.#showHead();
  }

  /**
   * @param {number} [seq] a message to show
   * @param {boolean} [quietly] what is shown stays until it has come to something
   */
  async open(seq, quietly) {
    if (this.#opening) return;
    const { chat } = this.page;
    clearTimeout(this.#triesTimer);
    this.#opening = true;
    this.#wanted = seq;
    if (!quietly) fill(this.body, h('div', { class: 'edge' }, h('span', { class: 'spinner', role: 'img', 'aria-label': t('loading') })));
    /** @type {import('./types.js').Summary} */
    let info;
    try {
      info = await chat.conversations.get(this.id);
      const me = info?.me;
      // With much unread, one begins where one stopped; with little, it is on the newest page anyway.
      const around = seq ?? (me && me.unread > 20 ? me.read_seq : undefined);
      await this.conversation.open(around === undefined ? {} : { around });
    } catch (error) {
      if (!this.#gone) this.#showFault(error);
      return;
    } finally {
      this.#opening = false;
    }
    if (this.#gone) return;
    this.#failed = false;
    this.#mount(info);
    if (this.#wanted !== undefined) this.show(this.#wanted);
  }

  /** @param {number} seq */
  show(seq) {
    this.#wanted = seq;
    if (this.#timeline) void told(this.#timeline.show(seq));
  }

  /** Tries again what failed for want of a connection. */
  again() {
    if (this.#failed) void this.open(this.#wanted, true);
    else this.#timeline?.again();
  }

  destroy() {
    this.#gone = true;
    clearTimeout(this.#triesTimer);
    clearTimeout(this.#readersTimer);
    clearTimeout(this.#speakTimer);
    closeMenu();
    this.#composer?.destroy();
    for (const off of this.#offs) off();
    this.#timeline?.destroy();
    this.element.remove();
  }

  /** @param {import('./types.js').Summary} info */
  #mount(info) {
    const { chat, people } = this.page;
    const me = chat.me;
    people.learnFrom([info]);
    const composer = new Composer(this.page, this.conversation, this.id, {
      onSent: () => {
        if (this.#gone) return;
        this.#timeline?.drawLine(null);
        void told(this.#showEnd());
      },
      onUp: () => this.#timeline?.enter(),
      onEditLast: () => {
        const last = this.#timeline?.findLast((message) => message.sender === me && !message.deleted_at && message.kind !== 'system' && message.kind !== 'share');
        if (last) composer.edit(last);
      },
    });
    const timeline = new TimelineView(
      this.conversation,
      {
        page: this.page, first: true, last: true, group: info.kind !== 'single', receipt: null, mediaOf,
        find: (seq) => this.#timeline?.find(seq),
        onMore: (button, message) => openMessageMenu(button, this.page, this.conversation, message, composer),
        onReact: (button, message) => chooseEmoji(button, (emoji) => void told(this.conversation.react(message.seq, emoji, true))),
        onReply: (message) => {
          if (!this.foot.dataset.why) composer.replyTo(message);
        },
        onToggle: (message, emoji, on) => void told(this.conversation.react(message.seq, emoji, on)),
        onQuote: (seq) => this.show(seq),
        onReceipt: (message) => showReaders(this.page, this.conversation, message),
        onRetry: (clientId) => this.conversation.retry(clientId),
        onDiscard: (clientId) => this.conversation.discard(clientId),
      },
      { me, onScroll: () => this.#showToEnd() },
    );
    this.#timeline = timeline;
    this.#composer = composer;
    timeline.receiptOf = (message) => this.#receiptOf(message);
    if ((info.me?.unread ?? 0) > 0) timeline.drawLine(info.me?.read_seq ?? null);
    fill(this.body, timeline.element, this.toEnd);
    this.#showFoot();
    timeline.begin();
    // Where there is no mouse, the field would bring up the keyboard of the screen.
    if (this.foot.dataset.why || !composer.shown()) this.name.focus({ preventScroll: true });
    this.#askReadersSoon();
    /** @param {{ id?: string }} [which] */
    const onTimeline = (which) => {
      if (which?.id === undefined || which.id === this.id) this.#onTimeline();
    };
    this.#offs = [
      chat.on('timeline', onTimeline),
      chat.on('outbox', onTimeline),
      chat.on('conversations', () => this.#showHead()),
      chat.on('typing', () => this.#showHead()),
      chat.on('event', (/** @type {any} */ event) => {
        if (event.conversation_id !== this.id) return;
        if (event.type === 'read.advanced') this.#askReadersSoon();
        if (event.type === 'message.created') this.#speakSoon(event.data.message);
      }),
      people.onChange(() => {
        this.#showHead();
        timeline.refresh();
      }),
    ];
    const onHidden = () => {
      // What comes while nobody looks will stand below a line.
      if (document.visibilityState === 'hidden') timeline.drawLine(this.#head() ?? 0);
      else timeline.look();
    };
    document.addEventListener('visibilitychange', onHidden);
    this.#offs.push(() => document.removeEventListener('visibilitychange', onHidden));
    this.#showHead();
  }

  #onTimeline() {
    this.#timeline?.update();
    this.#showHead();
    this.#showToEnd();
    this.#askReadersSoon();
  }

  /** Reads out what others write while it is looked at. @param {Message} message */
  #speakSoon(message) {
    if (message.sender === this.page.chat.me || message.kind === 'system' || document.visibilityState === 'hidden') return;
    this.#unspoken.push(message);
    // Counted from the first: in a busy group there is never a pause.
    this.#speakTimer ??= setTimeout(() => {
      this.#speakTimer = undefined;
      const [first, ...more] = this.#unspoken.splice(0);
      if (first) speak(more.length > 0 ? tn('spoken', more.length + 1) : `${this.page.people.name(first.sender)}: ${inShort(first)}`);
    }, SPEAK_AFTER_MS);
  }

  /** The newest seq that is known. */
  #head() {
    return this.#timeline?.findLast(() => true)?.seq ?? null;
  }

  /** @returns {import('./types.js').Summary | undefined} */
  get info() {
    return this.conversation.info ?? this.page.chat.conversations.items.find((/** @type {{ id: string }} */ one) => one.id === this.id);
  }

  #showHead() {
    const { info } = this;
    this.details.hidden = !info;
    if (!info) return this.#timeline ? this.#showFoot() : undefined;
    const { people, chat } = this.page;
    const name = titleOf(info, t('unnamed_group'));
    if (this.name.textContent !== name) {
      fill(this.name, isolated(name));
      fill(this.face, avatar(info.peer ?? this.id, name));
    }
    /** @type {string[]} */
    const typing = [...(this.conversation.typingUsers ?? [])].filter((user) => user !== chat.me);
    this.under.className = typing.length > 0 ? 'typing' : '';
    const said = typing.length > 0 ? typingWords(typing, people) : info.kind === 'single' ? [] : [tn('members', info.member_count)];
    const text = said.map((one) => (typeof one === 'string' ? one : (one.textContent ?? ''))).join('');
    if (this.under.textContent !== text) fill(this.under, said);
    if (this.#timeline) this.#showFoot();
  }

  /** The field, or why there is none. */
  #showFoot() {
    const { info } = this;
    // What one was removed from is not known any more.
    const why = info?.kind === 'system' ? 'read_only' : info?.me ? null : 'left_here';
    if (this.foot.dataset.why === (why ?? '')) return;
    const inside = this.foot.contains(document.activeElement);
    this.foot.dataset.why = why ?? '';
    fill(this.foot, why ? h('p', { class: 'no-writing', tabindex: '-1' }, t(why)) : this.#composer?.element);
    // Not into nowhere; and it is read out by that.
    if (inside && why) this.foot.querySelector('p')?.focus({ preventScroll: true });
  }

  async #showEnd() {
    await this.#timeline?.showEnd();
    this.#showToEnd();
  }

  #showToEnd() {
    const timeline = this.#timeline;
    if (!timeline) return;
    const unread = this.info?.me?.unread ?? 0;
    this.toEnd.hidden = timeline.atEnd;
    const label = unread > 0 ? tn('new_below', unread) : t('to_end');
    if (this.toEnd.getAttribute('aria-label') === label) return;
    this.toEnd.setAttribute('aria-label', label);
    this.toEnd.title = label;
    fill(this.toEnd, icon('down'), unread > 0 ? h('span', { class: 'badge', 'data-testid': 'new-below' }, unread > 999 ? '999+' : String(unread)) : null);
  }

  /** @param {Message} message */
  #receiptOf(message) {
    if (this.#receipt?.seq !== message.seq) return null;
    const { count } = this.#receipt;
    if (count === 0) return t('sent');
    return this.info?.kind === 'single' ? t('read') : tn('read_by', count);
  }

  #askReadersSoon() {
    clearTimeout(this.#readersTimer);
    this.#readersTimer = setTimeout(() => void this.#askReaders(), READERS_AFTER_MS);
  }

  async #askReaders() {
    const { me } = this.page.chat;
    const own = this.#timeline?.findLast((message) => message.sender === me && message.kind !== 'system' && !message.deleted_at);
    if (!own || this.#gone) return;
    try {
      const { count } = await this.conversation.readers(own.seq);
      if (this.#receipt?.seq === own.seq && this.#receipt.count === count) return;
      this.#receipt = { seq: own.seq, count };
      if (!this.#gone) this.#timeline?.refresh();
    } catch {
      // It is asked again when something moves.
    }
  }

  /** @param {unknown} error */
  #showFault(error) {
    const { status, retryAfter } = /** @type {{ status?: number, retryAfter?: number | null }} */ (error);
    // What is no id at all, the gateway refuses in other words.
    const unknown = [400, 404, 422].includes(status ?? 0);
    this.#failed = !unknown;
    if (this.#failed) {
      const pause = this.#tries.next({ atLeastMs: Math.max(1, retryAfter ?? 0) * 1_000 });
      this.#triesTimer = setTimeout(() => this.again(), pause);
    }
    const words = unknown ? t('not_found') : `${t('load_failed')} ${inWords(error)}`;
    // Read out once, however often it is tried.
    if (this.body.querySelector('[data-testid=fault] span')?.textContent === words) return;
    const again = h('button', { type: 'button', class: 'button', on: { click: () => void this.open(this.#wanted) } }, t('retry'));
    fill(this.body, h('div', { class: 'empty', role: 'alert', 'data-testid': 'fault' }, h('span', null, words), unknown ? null : again));
    fill(this.name, unknown ? '' : this.name.textContent);
  }

  #acceptDrops() {
    const hint = h('div', { class: 'drop-hint', hidden: true }, h('span', null, icon('picture'), t('drop_here')));
    this.element.append(hint);
    const files = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes('Files') === true && this.#composer !== null;
    this.element.addEventListener('dragenter', (event) => {
      if (files(event)) hint.hidden = false;
    });
    this.element.addEventListener('dragleave', (event) => {
      if (!this.element.contains(/** @type {Node | null} */ (event.relatedTarget))) hint.hidden = true;
    });
    this.element.addEventListener('dragover', (event) => files(event) && event.preventDefault());
    this.element.addEventListener('drop', (event) => {
      if (!files(event)) return;
      event.preventDefault();
      hint.hidden = true;
      const why = this.foot.dataset.why;
      if (why) notice(t(/** @type {import('./words.js').Word} */ (why)), true);
      else this.#composer?.drop(event.dataTransfer?.files ?? []);
    });
  }
}
