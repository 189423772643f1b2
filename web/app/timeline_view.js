/**
 * The messages of a conversation, as a window of rows that moves over what is loaded.
 *
 * At most ROWS_MAX rows exist, however long the history is; when one scrolls near an edge, rows are made there and dropped at the other. What is
 * in view stays where it is, whatever changes above it: before every change the place of the first visible row is noted, and the scroll position
 * is put right by as much as that row has moved. The browser's own anchoring is off, since it does not know which row is meant.
 */

import { fill, h } from './element.js';
import { inWords } from './errors.js';
import { dayKey, dayName } from './format.js';
import { fillRow, keyOf, rowSignature } from './message_view.js';
import { Place } from './scroll_place.js';
import { t } from './words.js';

/** @typedef {import('./types.js').Entry} Entry */
/** @typedef {import('./types.js').OpenConversation} OpenConversation */
/** @typedef {import('./message_view.js').RowContext} RowContext */

const ROWS_MAX = 220;
const ROWS_FIRST = 80;
const ROWS_STEP = 40;
/** How near to an edge of the window, in pixels, more rows are made. */
const NEAR = 1_200;
/** How near to the end one still follows it. */
const AT_END = 60;
/** Messages of one sender within this time stand close together, in milliseconds. */
const RUN_MS = 5 * 60_000;

export class TimelineView {
  /** @type {Entry[]} */
  #entries = [];
  /** @type {Map<string, { row: HTMLElement, signature: string }>} */
  #rows = new Map();
  #from = 0;
  #to = 0;
  /** Whether the newest message is kept in view. */
  #follows = true;
  #loading = { older: false, newer: false };
  /** @type {{ older: unknown, newer: unknown }} */
  #failed = { older: null, newer: null };
  /** The last seq that was read when the line was drawn. @type {number | null} */
  #lineAfter = null;
  /** @type {string | null} */
  #flash = null;
  #frame = 0;
  #gone = false;

  /**
   * @param {OpenConversation} conversation
   * @param {RowContext} context what is the same for all rows
   * @param {{ me: string | null, onScroll: (atEnd: boolean) => void }} options
   */
  constructor(conversation, context, options) {
    this.conversation = conversation;
    this.context = context;
    this.options = options;
    this.head = h('div', { class: 'edge' });
    this.tail = h('div', { class: 'edge' });
    this.rows = h('div', { class: 'entries', role: 'log', 'aria-label': t('messages'), 'aria-live': 'off', 'data-testid': 'messages' });
    this.inner = h('div', { class: 'timeline-inner' }, this.head, this.rows, this.tail);
    this.element = h('div', { class: 'timeline', 'data-testid': 'timeline', tabindex: '-1' }, this.inner);
    this.place = new Place(this.element, this.rows);
    this.element.addEventListener('scroll', () => this.#onScroll(), { passive: true });
    this.rows.addEventListener('keydown', (event) => this.#onKey(event));
    this.resizes = new ResizeObserver(() => this.#onResize());
    this.resizes.observe(this.element);
    this.resizes.observe(this.inner);
  }

  destroy() {
    this.#gone = true;
    this.resizes.disconnect();
    cancelAnimationFrame(this.#frame);
  }

  get atEnd() {
    return this.#follows;
  }

  /** @param {number | null} seq draws the line "new messages" behind this one, or takes it away */
  drawLine(seq) {
    this.#lineAfter = seq;
  }

  /** Shows the conversation for the first time: at the line if there is one, else at the end. */
  begin() {
    this.#take();
    const line = this.#firstNew();
    this.#follows = line < 0;
    this.#showAround(line < 0 ? this.#entries.length : line);
    const mark = this.rows.querySelector('.new-line');
    if (mark && line >= 0) {
      this.element.scrollTop += mark.getBoundingClientRect().top - this.element.getBoundingClientRect().top - this.element.clientHeight * 0.25;
      this.#follows = this.#isAtEnd();
    } else this.#toBottom();
    this.place.note();
    this.#afterScroll();
  }

  /** What is loaded has changed. */
  update() {
    const me = this.options.me;
    const fromKey = this.#entries[this.#from] && keyOf(/** @type {Entry} */ (this.#entries[this.#from]), me);
    const toKey = this.#entries[this.#to - 1] && keyOf(/** @type {Entry} */ (this.#entries[this.#to - 1]), me);
    const hadAll = this.#to === this.#entries.length;
    const size = this.#to - this.#from;
    this.#take();
    const places = new Map(this.#entries.map((entry, place) => [keyOf(entry, me), place]));
    const from = fromKey === undefined ? undefined : places.get(fromKey);
    const to = toKey === undefined ? undefined : places.get(toKey);
    if (this.#follows || from === undefined && to === undefined) {
      this.#to = this.#entries.length;
      this.#from = Math.max(0, this.#to - Math.max(ROWS_FIRST, Math.min(size, ROWS_MAX)));
    } else {
      this.#from = from ?? Math.max(0, (to ?? 0) - size);
      this.#to = Math.max(hadAll ? this.#entries.length : 0, to === undefined ? 0 : to + 1, Math.min(this.#from + ROWS_FIRST, this.#entries.length));
      this.#to = Math.min(this.#to, this.#from + ROWS_MAX);
    }
    this.#render();
    this.#afterScroll();
  }

  /** Rows that show names or receipts may look different now. */
  refresh() {
    this.#render();
  }

  /**
   * Brings a message into the middle and lets it shine up.
   * @param {number} seq
   */
  async show(seq) {
    const has = () => this.#entries.findIndex((entry) => entry.kind === 'message' && entry.seq === seq);
    if (has() < 0) {
      await this.conversation.jumpTo(seq);
      this.#take();
    }
    const place = has();
    const entry = this.#entries[place];
    if (this.#gone || !entry) return false;
    this.#follows = false;
    this.#flash = keyOf(entry, this.options.me);
    this.#showAround(place);
    const row = this.#rows.get(this.#flash)?.row;
    if (!row) return false;
    const [view, box] = [this.element.getBoundingClientRect(), row.getBoundingClientRect()];
    this.element.scrollTop += box.top - view.top - Math.max(24, (view.height - box.height) / 2);
    this.place.note();
    row.classList.remove('flash');
    void row.offsetWidth;
    row.classList.add('flash');
    this.#focusRow(row);
    this.#afterScroll();
    return true;
  }

  async showEnd() {
    if (this.conversation.timeline.hasNewer) await this.conversation.jumpToEnd();
    if (this.#gone) return;
    this.#follows = true;
    this.update();
    this.#toBottom();
    this.#afterScroll();
  }

  /** @param {number} seq */
  find(seq) {
    const entry = this.#entries.find((one) => one.kind === 'message' && one.seq === seq);
    return entry?.kind === 'message' ? entry.message : undefined;
  }

  /** The newest message that fits. @param {(message: import('./types.js').Message) => boolean} fits */
  findLast(fits) {
    for (let place = this.#entries.length - 1; place >= 0; place -= 1) {
      const entry = this.#entries[place];
      if (entry?.kind === 'message' && fits(entry.message)) return entry.message;
    }
    return undefined;
  }

  /** Tells what is in view again, after a time in which nobody looked. */
  look() {
    this.#noteSeen();
  }

  /** Lets the keyboard into the messages, at the newest one in view. */
  enter() {
    this.#focusRow(this.place.lastVisible() ?? this.rows.lastElementChild);
  }

  #take() {
    this.#entries = [...this.conversation.timeline.entries];
  }

  #firstNew() {
    const after = this.#lineAfter;
    if (after === null) return -1;
    return this.#entries.findIndex((entry) => entry.kind === 'message' && entry.seq > after && entry.message.sender !== this.options.me && entry.message.kind !== 'system');
  }

  /** @param {number} place */
  #showAround(place) {
    this.#from = Math.max(0, Math.min(place - ROWS_FIRST / 2, this.#entries.length - ROWS_FIRST));
    this.#to = Math.min(this.#entries.length, this.#from + ROWS_FIRST);
    this.#render();
  }

  #render() {
    this.place.keep(() => this.#reconcile());
    if (this.#follows) this.#toBottom();
    this.place.note();
  }

  #reconcile() {
    const wanted = this.#nodes();
    const keep = new Set(wanted);
    for (const child of [...this.rows.children]) if (!keep.has(/** @type {HTMLElement} */ (child))) child.remove();
    wanted.forEach((node, place) => {
      if (this.rows.children[place] !== node) this.rows.insertBefore(node, this.rows.children[place] ?? null);
    });
    for (const [key, { row }] of this.#rows) if (!keep.has(row)) this.#rows.delete(key);
    // Tab leads to the newest row, unless the keyboard is in the rows already.
    if (!this.rows.contains(document.activeElement)) this.#lead(wanted.findLast((node) => node.tagName === 'ARTICLE'));
    const { hasOlder, hasNewer } = this.conversation.timeline;
    this.#edge(this.head, 'older', hasOlder, this.#from === 0);
    this.#edge(this.tail, 'newer', hasNewer, this.#to === this.#entries.length);
  }

  /**
   * @param {HTMLElement} edge
   * @param {'older' | 'newer'} side
   * @param {boolean} more
   * @param {boolean} reached
   */
  #edge(edge, side, more, reached) {
    const state = this.#failed[side] ? 'failed' : more && reached ? 'more' : side === 'older' && reached ? 'begin' : 'none';
    if (edge.dataset.state === state) return;
    edge.dataset.state = state;
    if (state === 'failed') {
      const again = h('button', { type: 'button', class: 'button', on: { click: () => void this.#load(side) } }, t('retry'));
      fill(edge, h('span', { class: 'error-text' }, `${t('load_failed')} ${inWords(this.#failed[side])}`), again);
    } else if (state === 'more') fill(edge, h('span', { class: 'spinner', role: 'img', 'aria-label': t('loading') }));
    else fill(edge, state === 'begin' && this.#entries.length > 0 ? h('span', null, t('begin')) : null);
  }

  /** @returns {HTMLElement[]} */
  #nodes() {
    /** @type {HTMLElement[]} */
    const nodes = [];
    const line = this.#firstNew();
    for (let place = this.#from; place < this.#to; place += 1) {
      const entry = /** @type {Entry} */ (this.#entries[place]);
      const [before, after] = [this.#entries[place - 1], this.#entries[place + 1]];
      const newDay = timeOf(entry) !== null && (!before || dayOf(before) !== dayOf(entry));
      if (newDay) nodes.push(this.#divider(`d:${dayOf(entry)}`, 'day', dayName(/** @type {string} */ (timeOf(entry)))));
      if (place === line) nodes.push(this.#divider('new', 'new-line', t('new_messages')));
      const first = newDay || place === line || !together(before, entry, this.options.me);
      const last = !after || dayOf(after) !== dayOf(entry) || place + 1 === line || !together(entry, after, this.options.me);
      nodes.push(this.#row(entry, first, last));
    }
    return nodes;
  }

  /** @param {string} key @param {string} kind @param {string} text */
  #divider(key, kind, text) {
    let kept = this.#rows.get(key);
    if (!kept) {
      kept = { row: h('div', { class: `divider ${kind}`, role: 'separator', 'data-testid': kind }, h('span', null, text)), signature: text };
      this.#rows.set(key, kept);
    } else if (kept.signature !== text) {
      // Today is yesterday by now.
      fill(kept.row, h('span', null, text));
      kept.signature = text;
    }
    return kept.row;
  }

  /** @param {Entry} entry @param {boolean} first @param {boolean} last */
  #row(entry, first, last) {
    const key = keyOf(entry, this.options.me);
    const receipt = entry.kind === 'message' ? this.receiptOf(entry.message) : null;
    const context = { ...this.context, first, last, receipt };
    const now = rowSignature(entry, context);
    let kept = this.#rows.get(key);
    if (!kept) {
      kept = { row: h('article', { tabindex: '-1', 'data-key': key }), signature: '' };
      this.#rows.set(key, kept);
    }
    if (kept.signature !== now) {
      const back = focusWithin(kept.row);
      fillRow(kept.row, entry, context);
      kept.signature = now;
      back();
    }
    return kept.row;
  }

  /** What is said of who has read a message; set from outside. @type {(message: import('./types.js').Message) => string | null} */
  receiptOf = () => null;

  #onScroll() {
    this.#follows = this.#isAtEnd() && this.#to === this.#entries.length && !this.conversation.timeline.hasNewer;
    this.place.note();
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#afterScroll();
    });
  }

  /** Something has grown or shrunk: a picture, the field below, the screen. Before it is painted, all is put where it was. */
  #onResize() {
    if (this.#follows) this.#toBottom();
    else this.place.restore();
    this.place.note();
    if (!this.#gone) this.#noteSeen();
  }

  #afterScroll() {
    if (this.#gone) return;
    this.#slide();
    this.#noteSeen();
    this.options.onScroll(this.#follows);
  }

  /** Moves the window of rows, and asks for more where what is loaded ends. */
  #slide() {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    if (clientHeight === 0) return;
    if (scrollTop < NEAR) {
      if (this.#from > 0) {
        this.#from = Math.max(0, this.#from - ROWS_STEP);
        this.#to = Math.min(this.#to, this.#from + ROWS_MAX);
        this.#render();
      }
      if (this.#from === 0 && this.conversation.timeline.hasOlder && !this.#failed.older) void this.#load('older');
    }
    if (scrollHeight - scrollTop - clientHeight < NEAR) {
      if (this.#to < this.#entries.length) {
        this.#to = Math.min(this.#entries.length, this.#to + ROWS_STEP);
        this.#from = Math.max(this.#from, this.#to - ROWS_MAX);
        this.#render();
      }
      if (this.#to === this.#entries.length && this.conversation.timeline.hasNewer && !this.#failed.newer) void this.#load('newer');
    }
  }

  /** Tries again what could not be loaded. */
  again() {
    for (const side of /** @type {const} */ (['older', 'newer'])) if (this.#failed[side]) void this.#load(side);
  }

  /** @param {'older' | 'newer'} side */
  async #load(side) {
    if (this.#loading[side]) return;
    this.#loading[side] = true;
    this.#failed[side] = null;
    const before = this.conversation.timeline.entries.length;
    try {
      await (side === 'older' ? this.conversation.older() : this.conversation.newer());
    } catch (error) {
      this.#failed[side] = error;
    }
    this.#loading[side] = false;
    if (this.#gone) return;
    const added = this.conversation.timeline.entries.length - before;
    this.update();
    // A page may bring nothing that is shown; then the next one is asked for by the next movement.
    if (added > 0) this.#slide();
  }

  #noteSeen() {
    const seq = this.place.lastWholeSeq();
    if (seq > 0) this.conversation.seen(seq);
  }

  #isAtEnd() {
    return this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight <= AT_END;
  }

  #toBottom() {
    this.element.scrollTop = this.element.scrollHeight;
  }

  /** @type {HTMLElement | undefined} */
  #led;

  /** The one row that Tab leads to. @param {HTMLElement | undefined} row */
  #lead(row) {
    if (this.#led === row) return;
    if (this.#led) this.#led.tabIndex = -1;
    if (row) row.tabIndex = 0;
    this.#led = row;
  }

  /** @param {Element | null | undefined} row */
  #focusRow(row) {
    if (!(row instanceof HTMLElement)) return;
    this.#lead(row);
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: 'nearest' });
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const row = document.activeElement;
    if (!(row instanceof HTMLElement) || row.parentElement !== this.rows) return;
    const press = (/** @type {string} */ id) => /** @type {HTMLElement | null} */ (row.querySelector(`[data-testid="${id}"]`))?.click();
    /** @param {'nextElementSibling' | 'previousElementSibling'} way */
    const step = (way) => {
      let next = row[way];
      while (next && next.tagName !== 'ARTICLE') next = next[way];
      this.#focusRow(next);
    };
    if (event.key === 'ArrowUp') step('previousElementSibling');
    else if (event.key === 'ArrowDown') step('nextElementSibling');
    else if (event.key === 'Enter' || event.key === 'ContextMenu') press('more');
    else if (event.key === 'r' && !event.ctrlKey && !event.metaKey) press('reply');
    else return;
    event.preventDefault();
  }
}

/**
 * Keeps the focus on what it is on while a row is drawn anew: on the same button of it, else on the row.
 * @param {HTMLElement} row
 * @returns {() => void} gives it back
 */
function focusWithin(row) {
  const focused = document.activeElement;
  if (!(focused instanceof HTMLElement) || focused === row || !row.contains(focused)) return () => {};
  const alike = () => /** @type {HTMLElement[]} */ ([...row.querySelectorAll(focused.dataset.testid ? `[data-testid="${CSS.escape(focused.dataset.testid)}"]` : focused.localName)]);
  const place = alike().indexOf(focused);
  return () => (alike()[place] ?? row).focus({ preventScroll: true });
}

/** @param {Entry} entry @returns {string | number | null} */
function timeOf(entry) {
  if (entry.kind === 'message') return entry.message.created_at;
  return entry.kind === 'pending' ? entry.at : null;
}

/** @param {Entry} entry */
function dayOf(entry) {
  const at = timeOf(entry);
  return at === null ? '' : dayKey(at);
}

/** Whether two entries stand close together. @param {Entry | undefined} a @param {Entry | undefined} b @param {string | null} me */
function together(a, b, me) {
  const sender = (/** @type {Entry | undefined} */ one) =>
    one?.kind === 'message' ? (one.message.kind === 'system' ? null : one.message.sender) : one?.kind === 'pending' ? me : null;
  const who = sender(a);
  if (!a || !b || who === null || who !== sender(b)) return false;
  return Math.abs(new Date(timeOf(b) ?? 0).getTime() - new Date(timeOf(a) ?? 0).getTime()) < RUN_MS;
}
