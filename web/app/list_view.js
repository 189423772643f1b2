/**
 * The list of conversations: pinned ones first, more as one scrolls, what a search finds in its place.
 */

import { fill, h, icon, iconButton, isolated } from './element.js';
import { inWords } from './errors.js';
import { shortTime } from './format.js';
import { makeRow, signature, updateRow } from './list_row.js';
import { titleOf } from './people.js';
import { inShort } from './summary.js';
import { pieces, t } from './words.js';

/** @typedef {import('./types.js').Summary} Summary */
/** @typedef {import('./types.js').Message} Message */
/** @typedef {import('./types.js').Page} Page */

/** Pause in typing after which a search begins, in milliseconds. */
const SEARCH_AFTER_MS = 250;

export class ListView {
  /** @type {string | null} */
  #current = null;
  /** @type {Map<string, { row: HTMLLIElement, signature: string }>} */
  #rows = new Map();
  #loading = false;
  /** @type {unknown} */
  #failed = null;
  /** What the line below the list says, so that it is only said anew when it changes. */
  #noted = '';
  /** The row where the keyboard was. @type {string | null} */
  #entry = null;
  /** @type {{ text: string, conversations: Summary[], messages: Message[], fault: string | null } | null} */
  #found = null;
  #searches = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.input = h('input', {
      class: 'input', type: 'search', placeholder: t('search'), 'aria-label': t('search'), autocomplete: 'off', maxlength: '200',
      'data-testid': 'search', on: { input: () => this.#searchSoon(), keydown: (/** @type {KeyboardEvent} */ event) => this.#onSearchKey(event) },
    });
    this.clear = iconButton('close', t('search_clear'), () => this.#endSearch(), { hidden: true });
    this.list = h('ul', { class: 'rows', role: 'listbox', 'aria-label': t('conversations'), 'data-testid': 'conversations' });
    this.list.addEventListener('keydown', (event) => this.#onKey(event));
    this.list.addEventListener('focusin', (event) => {
      this.#entry = /** @type {HTMLElement} */ (event.target).dataset.id ?? null;
      this.#showEntry();
    });
    this.note = h('div', { class: 'list-note', 'aria-live': 'polite' });
    this.results = h('div', { 'data-testid': 'found', hidden: true });
    this.scroller = h('div', { class: 'list-scroll', on: { scroll: () => this.#moreIfNear() } }, this.list, this.results, this.note);
    this.element = h('nav', { class: 'list', 'aria-label': t('conversations') }, h('div', { class: 'search', role: 'search' }, icon('search'), this.input, this.clear), this.scroller);
    this.offs = [page.chat.on('conversations', () => this.update()), page.chat.on('typing', () => this.update()), page.people.onChange(() => this.update())];
    this.update();
  }

  destroy() {
    clearTimeout(this.#timer);
    for (const off of this.offs) off();
  }

  /** @param {string | null} id */
  setCurrent(id) {
    this.#current = id;
    this.update();
  }

  update() {
    const { conversations } = this.page.chat;
    /** @type {Summary[]} */
    const items = conversations.items.filter((/** @type {Summary} */ one) => !one.me?.hidden);
    this.page.people.learnFrom(items);
    // The server's order is that of activity; what is pinned goes on top, in the same order.
    const shown = [...items.filter((one) => one.me?.pinned), ...items.filter((one) => !one.me?.pinned)];
    const focused = document.activeElement instanceof HTMLElement && this.list.contains(document.activeElement) ? document.activeElement : null;
    const ids = new Set(shown.map((one) => one.id));
    for (const [id, { row }] of this.#rows) {
      if (!ids.has(id)) {
        row.remove();
        this.#rows.delete(id);
      }
    }
    shown.forEach((summary, place) => {
      const current = summary.id === this.#current;
      const now = signature(this.page, summary, current);
      let kept = this.#rows.get(summary.id);
      if (!kept) {
        kept = { row: makeRow(this.page, summary, current), signature: now };
        this.#rows.set(summary.id, kept);
      } else if (kept.signature !== now) {
        updateRow(kept.row, this.page, summary, current);
        kept.signature = now;
      }
      if (this.list.children[place] !== kept.row) this.list.insertBefore(kept.row, this.list.children[place] ?? null);
    });
    focused?.focus({ preventScroll: true });
    this.#showEntry();
    this.#showNote(shown.length);
    requestAnimationFrame(() => this.#moreIfNear());
  }

  /** @param {number} shown */
  #showNote(shown) {
    const { conversations } = this.page.chat;
    const waits = this.#loading || conversations.hasMore || !conversations.loaded;
    const now = this.#found ? '' : this.#failed ? `failed ${inWords(this.#failed)}` : waits ? 'waits' : shown === 0 ? 'empty' : '';
    if (now === this.#noted) return;
    this.#noted = now;
    if (now === '') return fill(this.note);
    if (this.#failed) {
      const again = h('button', { type: 'button', class: 'button', on: { click: () => this.#more() } }, t('retry'));
      return fill(this.note, h('span', { class: 'error-text' }, `${t('list_failed')} ${inWords(this.#failed)}`), again);
    }
    if (waits) return fill(this.note, h('span', { class: 'spinner', role: 'img', 'aria-label': t('list_more') }));
    fill(this.note, h('strong', null, t('list_empty')), t('list_empty_why'));
  }

  #moreIfNear() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    if (this.#found || clientHeight === 0 || scrollHeight - scrollTop - clientHeight > 600) return;
    const { hasMore, loaded } = this.page.chat.conversations;
    if (loaded && hasMore && !this.#loading && !this.#failed) void this.#more();
  }

  /** Tries again what could not be loaded. */
  again() {
    if (this.#failed && !this.#loading) void this.#more();
  }

  async #more() {
    this.#loading = true;
    this.#failed = null;
    this.#showNote(this.#rows.size);
    try {
      await this.page.chat.conversations.more();
    } catch (error) {
      this.#failed = error;
    }
    this.#loading = false;
    this.update();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    const rows = /** @type {HTMLElement[]} */ ([...this.list.children]);
    const place = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (event.key === 'ArrowDown') this.#focusRow(rows[Math.min(place + 1, rows.length - 1)]);
    else if (event.key === 'ArrowUp') {
      if (place <= 0) this.input.focus();
      else this.#focusRow(rows[place - 1]);
    } else if (event.key === 'Home') this.#focusRow(rows[0]);
    else if (event.key === 'End') this.#focusRow(rows.at(-1));
    else if ((event.key === 'Enter' || event.key === ' ') && rows[place]) rows[place].click();
    else return;
    event.preventDefault();
  }

  /** Tab leads to one row alone: where the keyboard was, else what is open, else the first. */
  #showEntry() {
    const kept = this.#rows.get(this.#entry ?? '') ?? this.#rows.get(this.#current ?? '');
    const row = kept?.row ?? this.list.children[0];
    for (const other of this.list.children) /** @type {HTMLElement} */ (other).tabIndex = other === row ? 0 : -1;
  }

  /** Gives the keyboard back to the row of a conversation that was open. @param {string} id */
  enter(id) {
    this.#rows.get(id)?.row.focus({ preventScroll: true });
  }

  /** @param {Element | undefined} row */
  #focusRow(row) {
    if (row instanceof HTMLElement) row.focus();
  }

  /** @param {KeyboardEvent} event */
  #onSearchKey(event) {
    // While an input method composes, its keys are its own.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === 'Escape' && this.input.value) this.#endSearch();
    else if (event.key === 'ArrowDown') {
      const first = this.#found ? this.results.querySelector('[tabindex="0"], button') : this.list.children[0];
      if (first instanceof HTMLElement) first.focus();
    } else return;
    event.preventDefault();
  }

  #endSearch() {
    this.input.value = '';
    this.#searchSoon();
    this.input.focus();
  }

  #searchSoon() {
    clearTimeout(this.#timer);
    const text = this.input.value.trim();
    this.clear.hidden = this.input.value === '';
    this.#searches += 1;
    if (text === '') {
      this.#found = null;
      this.#showFound();
      return;
    }
    this.#timer = setTimeout(() => void this.#search(text), SEARCH_AFTER_MS);
  }

  /** @param {string} text */
  async #search(text) {
    const mine = this.#searches;
    const { chat } = this.page;
    const [conversations, messages] = await Promise.allSettled([chat.conversations.search(text), this.#searchMessages(text)]);
    // An answer to an older question.
    if (mine !== this.#searches) return;
    const refused = [conversations, messages].find((one) => one.status === 'rejected');
    /** @param {PromiseSettledResult<any>} one */
    const found = (one) => (one.status === 'fulfilled' ? (one.value?.items ?? one.value ?? []) : []);
    this.#found = { text, conversations: found(conversations), messages: found(messages), fault: refused ? inWords(refused.reason) : null };
    this.page.people.learnFrom(this.#found.conversations);
    this.#showFound();
  }

  /** @param {string} text */
  #searchMessages(text) {
    return this.page.chat.api.getSearch({ query: { q: text, limit: 30 } });
  }

  #showFound() {
    const found = this.#found;
    this.list.hidden = found !== null;
    this.results.hidden = found === null;
    if (!found) {
      fill(this.results);
      return this.update();
    }
    this.#showNote(0);
    const { chat, people } = this.page;
    const rows = found.conversations.map((one) => {
      const row = makeRow(this.page, one, one.id === this.#current);
      row.tabIndex = 0;
      row.addEventListener('keydown', (event) => event.key === 'Enter' && row.click());
      return row;
    });
    const messages = found.messages.map((message) => {
      /** @type {Summary | undefined} */
      const where = chat.conversations.items.find((/** @type {Summary} */ one) => one.id === message.conversation_id);
      const name = where ? titleOf(where, t('unnamed_group')) : people.name(message.sender);
      return h(
        'button',
        { type: 'button', class: 'row found-message', 'data-testid': 'found-message', on: { click: () => this.page.open(message.conversation_id, message.seq) } },
        h('div', { class: 'row-line' }, isolated(name, 'row-name'), h('time', { class: 'row-time' }, shortTime(message.created_at))),
        h('span', { class: 'found-text' }, isolated(people.name(message.sender)), ': ', isolated(inShort(message))),
      );
    });
    fill(
      this.results,
      rows.length > 0 ? [h('h2', null, t('found_conversations')), h('ul', { class: 'rows', role: 'listbox', 'aria-label': t('found_conversations') }, rows)] : null,
      messages.length > 0 ? [h('h2', null, t('found_messages')), ...messages] : null,
      found.fault ? h('div', { class: 'list-note error-text', role: 'alert', 'data-testid': 'search-fault' }, found.fault) : null,
      rows.length + messages.length === 0 && !found.fault ? h('div', { class: 'list-note', role: 'status' }, h('span', null, pieces('found_nothing', { text: isolated(found.text) }))) : null,
    );
  }
}
