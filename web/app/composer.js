/**
 * Where one writes: text, pictures in their places, an answer to a message, the edit of one.
 *
 * In the field a picture's place is a word in brackets, e.g. [picture 1]; it becomes the contract's mark when the message is sent.
 */

import { Attachments } from './attachments.js';
import { fill, h, icon, iconButton, isolated } from './element.js';
import { told } from './errors.js';
import { inShort, PICTURE_MARK } from './summary.js';
import { pieces, t, tn } from './words.js';

/** @typedef {import('./types.js').Message} Message */
/** @typedef {import('./types.js').Page} Page */

/** As the contract counts: Unicode characters. */
const CHARACTERS_MAX = 4_000;
/** From here on one is told how many they are. */
const CHARACTERS_TOLD = 3_600;

/** What was written and not sent, by conversation; for as long as the tab lives. @type {Map<string, string>} */
const drafts = new Map();

export class Composer {
  /** @type {Message | null} */
  #replyTo = null;
  /** @type {Message | null} */
  #editing = null;
  #sendWhenReady = false;

  /**
   * @param {Page} page
   * @param {import('./types.js').OpenConversation} conversation
   * @param {string} id
   * @param {{ onSent: () => void, onUp: () => void, onEditLast: () => void }} options
   */
  constructor(page, conversation, id, options) {
    this.page = page;
    this.conversation = conversation;
    this.id = id;
    this.options = options;
    this.attachments = new Attachments(page.chat, {
      onChange: () => this.#changed(),
      onPlace: (number) => this.#insert(mark(number)),
      onRemove: (number) => this.#unplace(number),
    });
    this.field = h('textarea', {
      class: 'write', rows: '1', placeholder: t('write'), 'aria-label': t('write'), dir: 'auto', autocomplete: 'off', 'data-testid': 'composer', enterkeyhint: 'send',
      on: {
        input: () => this.#typed(),
        keydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
        paste: (/** @type {ClipboardEvent} */ event) => this.#onPaste(event),
      },
    });
    this.field.value = drafts.get(id) ?? '';
    this.files = h('input', {
      type: 'file', accept: 'image/png,image/jpeg,image/gif,image/webp', multiple: true, hidden: true, 'data-testid': 'files',
      on: { change: () => this.#addFiles([...(this.files.files ?? [])]) },
    });
    this.button = iconButton('send', t('send'), () => this.send(), { class: 'send', 'data-testid': 'send' });
    this.about = h('div', { class: 'about', hidden: true, 'data-testid': 'about' });
    this.count = h('div', { class: 'count', role: 'status' });
    this.element = h(
      'div',
      { class: 'composer' },
      this.about,
      this.attachments.element,
      h('div', { class: 'composer-line' }, iconButton('picture', t('add_picture'), () => this.files.click(), { 'data-testid': 'add-picture' }), this.files, this.field, this.button),
      this.count,
    );
    this.#changed();
  }

  /** Called when the element is in the page. */
  shown() {
    this.#fit();
    if (matchMedia('(hover: hover)').matches) this.field.focus({ preventScroll: true });
  }

  /** @param {Iterable<File>} files */
  drop(files) {
    this.#addFiles([...files]);
  }

  /** @param {Message} message */
  replyTo(message) {
    if (this.#editing) this.#endEditing();
    this.#replyTo = message;
    this.#showAbout();
    this.field.focus();
  }

  /** @param {Message} message */
  edit(message) {
    this.#replyTo = null;
    if (!this.#editing) this.#keepDraft();
    this.attachments.clear();
    this.#editing = message;
    const media = [...message.media].sort((a, b) => a.position - b.position);
    const numbers = new Map(this.attachments.take(media).map((number, place) => [media[place]?.id ?? '', number]));
    this.field.value = media.length === 0 ? message.body : message.body.replace(PICTURE_MARK, (whole, id) => (numbers.has(id) ? mark(numbers.get(id) ?? 0) : whole));
    this.#showAbout();
    this.#changed();
    this.field.focus();
    this.field.setSelectionRange(this.field.value.length, this.field.value.length);
  }

  send() {
    const text = this.field.value;
    if (!this.#canSend(text)) return;
    if (this.attachments.left > 0) {
      this.#sendWhenReady = !this.attachments.failed;
      return this.#changed();
    }
    this.#sendWhenReady = false;
    const ready = this.attachments.ready;
    const ids = new Map(ready.map(({ number, media }) => [number, media.id]));
    const body = wellFormed(ids.size === 0 ? text.trim() : text.trim().replace(markPattern(), (whole, number) => (ids.has(Number(number)) ? `![img:${ids.get(Number(number))}]` : whole)));
    const media = ready.map((one) => one.media.id);
    if (this.#editing) {
      const { seq } = this.#editing;
      void told(this.conversation.edit(seq, media.length > 0 ? { body, media } : { body }));
      return this.#endEditing();
    }
    const draft = { body, ...(media.length > 0 ? { kind: 'image', media } : {}), ...(this.#replyTo ? { replyTo: this.#replyTo.seq } : {}) };
    this.field.value = '';
    drafts.delete(this.id);
    this.#replyTo = null;
    this.attachments.clear();
    this.#showAbout();
    this.#changed();
    this.conversation.send(draft);
    this.options.onSent();
  }

  /** @param {string} text */
  #canSend(text) {
    const length = [...text.trim()].length;
    return length <= CHARACTERS_MAX && (visible(text) || this.attachments.count > 0);
  }

  #typed() {
    this.#changed();
    if (!this.#editing) {
      this.#keepDraft();
      if (this.field.value.trim()) this.conversation.typing();
    }
  }

  #keepDraft() {
    if (this.field.value) drafts.set(this.id, this.field.value);
    else drafts.delete(this.id);
  }

  #changed() {
    const text = this.field.value;
    const length = [...text.trim()].length;
    this.button.disabled = !this.#canSend(text);
    this.count.className = length > CHARACTERS_MAX ? 'count error-text' : 'count';
    const waits = this.#sendWhenReady && this.attachments.left > 0;
    this.count.textContent = waits ? tn('picture_left', this.attachments.left) : length > CHARACTERS_TOLD ? t('too_long', { n: length }) : '';
    this.#fit();
    if (this.#sendWhenReady && this.attachments.left === 0) this.send();
  }

  /** As high as what is written, up to a limit that the style sheet sets. */
  #fit() {
    this.field.style.height = 'auto';
    this.field.style.height = `${this.field.scrollHeight + 2}px`;
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    // While an input method composes, Enter and the arrows belong to it; Safari ends composing before the key, and gives it away by its code.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === 'Enter' && !event.shiftKey && !event.altKey && !matchMedia('(pointer: coarse)').matches) this.send();
    else if (event.key === 'Escape' && (this.#editing || this.#replyTo)) this.#cancel();
    else if (event.key === 'ArrowUp' && this.field.value === '' && event.altKey) this.options.onUp();
    else if (event.key === 'ArrowUp' && this.field.value === '' && !this.#editing) this.options.onEditLast();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {ClipboardEvent} event */
  #onPaste(event) {
    const files = [...(event.clipboardData?.files ?? [])].filter((file) => file.type.startsWith('image/'));
    if (files.length === 0) return;
    event.preventDefault();
    this.#addFiles(files);
  }

  /** @param {File[]} files */
  #addFiles(files) {
    const numbers = this.attachments.add(files);
    // Into a text that is there already they go where the cursor stands; alone they need no place.
    if (this.field.value.trim() !== '') for (const number of numbers) this.#insert(mark(number));
    this.files.value = '';
    this.#changed();
    this.field.focus();
  }

  /** @param {string} text */
  #insert(text) {
    const { selectionStart: from, selectionEnd: to, value } = this.field;
    const before = value.slice(0, from);
    this.field.setRangeText(before === '' || /\s$/.test(before) ? `${text} ` : ` ${text} `, from, to, 'end');
    this.#typed();
    this.field.focus();
  }

  /** @param {number} number */
  #unplace(number) {
    this.field.value = this.field.value.replace(markPattern(), (whole, found) => (Number(found) === number ? '' : whole));
    this.#typed();
  }

  #cancel() {
    if (this.#editing) return this.#endEditing();
    this.#replyTo = null;
    this.#showAbout();
    this.field.focus();
  }

  #endEditing() {
    this.#editing = null;
    this.attachments.clear();
    this.field.value = drafts.get(this.id) ?? '';
    this.#showAbout();
    this.#changed();
    this.field.focus();
  }

  #showAbout() {
    const message = this.#editing ?? this.#replyTo;
    this.about.hidden = !message;
    if (!message) return fill(this.about);
    const own = message.sender === this.page.chat.me;
    const name = own ? t('you') : this.page.people.name(message.sender);
    const title = this.#editing ? t('editing') : pieces('replying_to', { name: isolated(name) });
    fill(
      this.about,
      icon(this.#editing ? 'edit' : 'reply'),
      h('div', null, h('strong', null, title), h('div', { class: 'about-words', dir: 'auto' }, inShort(message))),
      iconButton('close', t('cancel'), () => this.#cancel(), { 'data-testid': 'cancel-about' }),
    );
  }
}

/** @param {number} number */
function mark(number) {
  return `[${t('picture_mark', { n: number })}]`;
}

function markPattern() {
  return new RegExp(`\\[${t('picture_mark', { n: '(\\d+)' })}\\]`, 'g');
}

/** Whether there is anything to see: no white space, no characters that only format. @param {string} text */
function visible(text) {
  return /[^\s\p{Cf}\p{Cc}\p{Zs}]/u.test(text);
}

/** A half of a pair that stands alone can be typed by nobody, but be left by an accident; it is no character. @param {string} text */
function wellFormed(text) {
  return text.replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, '\uFFFD');
}
