/**
 * Where one writes: text, pictures in their places, an answer to a message, the edit of one.
 *
 * In the field a picture's place is a word in brackets, e.g. [picture 1]; it becomes the contract's mark when the message is sent.
 */

import { Attachments } from './attachments.js';
import { notice } from './dialog.js';
import { fill, h, icon, iconButton, isolated, visible } from './element.js';
import { told } from './errors.js';
import { inShort, PICTURE_MARK } from './summary.js';
import { inEveryLanguage, pieces, t, tn } from './words.js';

/** @typedef {import('./types.js').Message} Message */
/** @typedef {import('./types.js').Page} Page */

/** As the contract counts: Unicode characters. */
const CHARACTERS_MAX = 4_000;
/** From here on one is told how many they are. */
const CHARACTERS_TOLD = 3_600;

/**
 * What was written and not sent, by writer and conversation; for as long as the tab lives.
 * @type {Map<string, { text: string, replyTo: Message | null, pictures: Attachments | null }>}
 */
const drafts = new Map();

export class Composer {
  /** @type {Message | null} */
  #replyTo = null;
  /** @type {Message | null} */
  #editing = null;
  #sendWhenReady = false;
  /** An edit is on its way. */
  #saving = false;

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
    this.key = `${page.chat.me} ${id}`;
    const draft = drafts.get(this.key);
    if (draft?.pictures && draft.pictures.chat !== page.chat) {
      // They were uploaded over a connection that has ended.
      draft.pictures.clear();
      Object.assign(draft, { text: withMarks(draft.text, () => ''), pictures: null });
    }
    this.attachments = draft?.pictures ?? new Attachments(page.chat);
    this.attachments.options = {
      onChange: () => this.#changed(),
      onPlace: (number) => this.#insert(mark(number)),
      onRemove: (number) => this.#unplace(number),
    };
    this.#replyTo = draft?.replyTo ?? null;
    this.field = h('textarea', {
      class: 'write', rows: '1', placeholder: t('write'), 'aria-label': t('write'), dir: 'auto', autocomplete: 'off', 'data-testid': 'composer', enterkeyhint: writesLines() ? 'enter' : 'send',
      on: {
        input: () => this.#typed(),
        keydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
        paste: (/** @type {ClipboardEvent} */ event) => this.#onPaste(event),
      },
    });
    this.field.value = draft?.text ?? '';
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
    this.#showAbout();
    this.#changed();
  }

  /** Called when the element is in the page. @returns {boolean} whether it took the focus */
  shown() {
    this.#fit();
    if (!matchMedia('(hover: hover)').matches) return false;
    this.field.focus({ preventScroll: true });
    return true;
  }

  /** One goes elsewhere. What was written here stays, with its pictures. */
  destroy() {
    if (this.#editing) this.attachments.clear();
    else this.#keepDraft();
  }

  /** @param {Iterable<File>} files */
  drop(files) {
    this.#addFiles([...files]);
  }

  /** @param {Message} message */
  replyTo(message) {
    if (this.#editing) this.#endEditing();
    this.#replyTo = message;
    this.#keepDraft();
    this.#showAbout();
    this.field.focus();
  }

  /** @param {Message} message */
  edit(message) {
    if (!this.#editing) {
      this.#keepDraft();
      // The pictures of the draft wait with it; an edit has its own.
      const { options } = this.attachments;
      if (this.attachments.count > 0) this.attachments.element.replaceWith((this.attachments = new Attachments(this.page.chat)).element);
      this.attachments.options = options;
    } else this.attachments.clear();
    this.#replyTo = null;
    this.#sendWhenReady = false;
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
      this.#sendWhenReady = this.attachments.failed === 0;
      return this.#changed();
    }
    this.#sendWhenReady = false;
    const ready = this.attachments.ready;
    const ids = new Map(ready.map(({ number, media }) => [number, media.id]));
    const body = wellFormed(ids.size === 0 ? text.trim() : withMarks(text.trim(), (number) => (ids.has(number) ? `![img:${ids.get(number)}]` : null)));
    const media = ready.map((one) => one.media.id);
    if (this.#editing) return void this.#save(this.#editing, media.length > 0 ? { body, media } : { body });
    const draft = { body, ...(media.length > 0 ? { kind: 'image', media } : {}), ...(this.#replyTo ? { replyTo: this.#replyTo.seq } : {}) };
    this.field.value = '';
    drafts.delete(this.key);
    this.#replyTo = null;
    this.attachments.clear();
    this.#showAbout();
    this.#changed();
    this.conversation.send(draft);
    this.options.onSent();
  }

  /**
   * An edit ends when it is done: one that fails must not take with it what was written.
   * @param {Message} message
   * @param {{ body: string, media?: string[] }} words
   */
  async #save(message, words) {
    this.#saving = this.field.readOnly = true;
    this.#changed();
    const done = await told(this.conversation.edit(message.seq, words).then(() => true));
    this.#saving = this.field.readOnly = false;
    if (done && this.#editing === message) this.#endEditing();
    else this.#changed();
  }

  /** @param {string} text */
  #canSend(text) {
    if (this.#saving || (this.#editing?.kind === 'image' && this.attachments.count === 0)) return false;
    const length = [...text.trim()].length;
    return length <= CHARACTERS_MAX && (visible(text) || this.attachments.count > 0);
  }

  #typed() {
    // Who writes on is not done.
    this.#sendWhenReady = false;
    this.#changed();
    if (!this.#editing) {
      this.#keepDraft();
      if (this.field.value.trim()) this.conversation.typing();
    }
  }

  #keepDraft() {
    const pictures = this.attachments.count > 0 ? this.attachments : null;
    if (this.field.value || pictures || this.#replyTo) drafts.set(this.key, { text: this.field.value, replyTo: this.#replyTo, pictures });
    else drafts.delete(this.key);
  }

  #changed() {
    const text = this.field.value;
    const length = [...text.trim()].length;
    this.button.disabled = !this.#canSend(text);
    const { failed, left } = this.attachments;
    if (failed > 0) this.#sendWhenReady = false;
    const bare = this.#editing?.kind === 'image' && this.attachments.count === 0;
    this.count.className = length > CHARACTERS_MAX || failed > 0 || bare ? 'count error-text' : 'count';
    const said = bare ? t('picture_needed') : failed > 0 ? tn('pictures_failed', failed) : this.#sendWhenReady && left > 0 ? tn('picture_left', left) : length > CHARACTERS_TOLD ? t('too_long', { n: length }) : '';
    if (this.count.textContent !== said) this.count.textContent = said;
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
    if (event.key === 'Enter' && !event.shiftKey && !event.altKey && !writesLines()) this.send();
    else if (event.key === 'Escape' && (this.#editing || this.#replyTo)) this.#cancel();
    else if (event.key === 'ArrowUp' && this.field.value === '' && event.altKey) this.options.onUp();
    else if (event.key === 'ArrowUp' && this.field.value === '' && !this.#editing) this.options.onEditLast();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {ClipboardEvent} event */
  #onPaste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    // Office programs give words and, beside them, a picture of the words.
    const written = event.clipboardData?.types.includes('text/html') && event.clipboardData.getData('text/plain').trim() !== '';
    if (files.length === 0 || written) return;
    event.preventDefault();
    this.#addFiles(files);
  }

  /** @param {File[]} files */
  #addFiles(files) {
    if (this.#saving || (this.#editing && this.#editing.kind !== 'image')) return notice(t('picture_not_here'), true);
    const numbers = this.attachments.add(files);
    // Into a text that is there already they go where the cursor stands; alone they need no place.
    if (this.field.value.trim() !== '') for (const number of numbers) this.#insert(mark(number));
    this.files.value = '';
    this.#typed();
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
    this.field.value = withMarks(this.field.value, (found) => (found === number ? '' : null));
    this.#typed();
  }

  #cancel() {
    if (this.#editing) return this.#endEditing();
    this.#replyTo = null;
    this.#keepDraft();
    this.#showAbout();
    this.field.focus();
  }

  #endEditing() {
    const draft = drafts.get(this.key);
    this.#editing = null;
    this.attachments.clear();
    if (draft?.pictures) this.attachments.element.replaceWith((this.attachments = draft.pictures).element);
    this.field.value = draft?.text ?? '';
    this.#replyTo = draft?.replyTo ?? null;
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

/**
 * A text with other words for its marks, in whatever language they were set: the draft may be older than the choice of one.
 * @param {string} text
 * @param {(number: number) => string | null} other null leaves the mark
 */
function withMarks(text, other) {
  for (const word of inEveryLanguage('picture_mark')) {
    text = text.replace(new RegExp(`\\[${word.replace('{n}', '(\\d+)')}\\]`, 'g'), (whole, number) => other(Number(number)) ?? whole);
  }
  return text;
}

/** Whether Enter begins a line: on the keyboard of a screen there is no Shift to hold. */
function writesLines() {
  return matchMedia('(pointer: coarse)').matches;
}

/** A half of a pair that stands alone can be typed by nobody, but be left by an accident; it is no character, and neither is U+0000. @param {string} text */
function wellFormed(text) {
  return text.replaceAll('\0', '').replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, '\uFFFD');
}
