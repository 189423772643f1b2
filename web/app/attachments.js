/**
 * Pictures that are going to be sent: uploaded at once, shown with how far they are, numbered so that the text can name their places.
 */

import { attribute, h, icon, iconButton } from './element.js';
import { notice } from './dialog.js';
import { inWords } from './errors.js';
import { t } from './words.js';

/** @typedef {import('./types.js').MediaItem} MediaItem */
/** @typedef {{ number: number, blob: Blob | null, media: MediaItem | null, share: number, error: unknown, stop: AbortController, url: string, parts?: Parts }} Attachment */
/** @typedef {{ item: HTMLLIElement, image: HTMLImageElement, bar: HTMLProgressElement, again: HTMLButtonElement }} Parts */
/** @typedef {{ onChange: () => void, onPlace: (number: number) => void, onRemove: (number: number) => void }} Options */

export const PICTURES_MAX = 9;
const KINDS = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** What is known of pictures that were uploaded here, for messages on their way. @type {Map<string, MediaItem>} */
const known = new Map();

/** @param {string[]} ids @returns {MediaItem[]} */
export function mediaOf(ids) {
  return ids.map((id, position) => known.get(id) ?? { id, position, mime_type: 'image/png', width: 240, height: 180, size: 0 });
}

export class Attachments {
  /** @type {Attachment[]} */
  #all = [];
  #numbers = 0;

  /** Who is told; another one when the pictures were left and come back. @type {Options} */
  options = { onChange: () => {}, onPlace: () => {}, onRemove: () => {} };

  /** @param {import('./types.js').Chat} chat */
  constructor(chat) {
    this.chat = chat;
    this.element = h('ul', { class: 'attachments', hidden: true, 'data-testid': 'attachments' });
  }

  get count() {
    return this.#all.length;
  }

  /** Those that are not there yet. */
  get left() {
    return this.#all.filter((one) => !one.media).length;
  }

  get failed() {
    return this.#all.filter((one) => one.error).length;
  }

  /** In order. @returns {{ number: number, media: MediaItem }[]} */
  get ready() {
    return this.#all.flatMap(({ number, media }) => (media ? [{ number, media }] : []));
  }

  /** @param {Iterable<File>} files @returns {number[]} the numbers they got */
  add(files) {
    const fit = [...files].filter((file) => KINDS.includes(file.type));
    const taken = fit.slice(0, PICTURES_MAX - this.#all.length);
    // Said once, however many there are.
    if (fit.length < [...files].length) notice(t('picture_kind'), true);
    if (taken.length < fit.length) notice(t('picture_many'), true);
    const numbers = taken.map((file) => this.#add(file));
    this.#show();
    return numbers;
  }

  /** Pictures that a message has already. @param {MediaItem[]} media @returns {number[]} */
  take(media) {
    const numbers = media.map((item) => {
      known.set(item.id, item);
      this.#all.push({ number: (this.#numbers += 1), blob: null, media: item, share: 1, error: null, stop: new AbortController(), url: '' });
      return this.#numbers;
    });
    this.#show();
    return numbers;
  }

  clear() {
    for (const one of this.#all) this.#drop(one);
    this.#all = [];
    this.#numbers = 0;
    this.#show();
  }

  /** @param {File} file */
  #add(file) {
    const number = (this.#numbers += 1);
    /** @type {Attachment} */
    const one = { number, blob: file, media: null, share: 0, error: null, stop: new AbortController(), url: URL.createObjectURL(file) };
    this.#all.push(one);
    void this.#upload(one);
    return number;
  }

  /** @param {Attachment} one */
  async #upload(one) {
    one.error = null;
    one.share = 0;
    this.#show();
    try {
      const onProgress = (/** @type {any} */ done) => {
        one.share = typeof done === 'number' ? done : (done.loaded ?? 0) / (done.total || 1);
        this.#show();
      };
      const media = await this.chat.upload(one.blob, { onProgress, signal: one.stop.signal });
      /** @type {MediaItem} */
      const item = { position: 0, ...media };
      one.media = item;
      known.set(item.id, item);
    } catch (error) {
      if (one.stop.signal.aborted) return;
      one.error = error;
      if (this.element.isConnected) notice(inWords(error), true);
    }
    if (one.stop.signal.aborted) return;
    this.#show();
    this.options.onChange();
  }

  /** @param {Attachment} one */
  #drop(one) {
    one.stop.abort();
    if (one.url) URL.revokeObjectURL(one.url);
  }

  /** @param {Attachment} one */
  #remove(one) {
    const place = this.#all.indexOf(one);
    this.#drop(one);
    this.#all = this.#all.filter((other) => other !== one);
    this.#show();
    this.options.onRemove(one.number);
    this.options.onChange();
    // To the next one's button, which stands where this one stood; to the field when there is none.
    const next = this.#all[Math.min(place, this.#all.length - 1)];
    /** @type {HTMLElement | null | undefined} */ (next?.parts?.item.querySelector('.drop') ?? this.element.parentElement?.querySelector('textarea'))?.focus();
  }

  #show() {
    this.element.hidden = this.#all.length === 0;
    const parts = this.#all.map((one) => (one.parts ??= this.#make(one)));
    const now = new Set(parts.map(({ item }) => item));
    for (const item of [...this.element.children]) if (!now.has(/** @type {HTMLLIElement} */ (item))) item.remove();
    // What is there already is only told anew: it is looked at, and its buttons are pressed, while a picture is on its way.
    for (const [place, one] of this.#all.entries()) {
      const { item, image, bar, again } = /** @type {Parts} */ (one.parts);
      if (this.element.children[place] !== item) this.element.append(item);
      const percent = Math.round(one.share * 100);
      item.className = one.error ? 'failed' : one.media ? '' : 'loading';
      bar.hidden = Boolean(one.error ?? one.media);
      bar.value = percent;
      attribute(bar, 'aria-label', t('uploading', { n: percent }));
      again.hidden = !one.error;
      if (!one.url && one.media && !image.src) this.chat.mediaUrl(one.media.id).then((/** @type {string} */ url) => (image.src = url), () => {});
    }
  }

  /** @param {Attachment} one @returns {Parts} */
  #make(one) {
    const { number } = one;
    const image = h('img', { alt: t('picture_mark', { n: number }) });
    if (one.url) image.src = one.url;
    const bar = h('progress', { max: '100', 'data-testid': 'progress' });
    const again = h('button', { type: 'button', class: 'again', 'data-testid': 'upload-again', title: t('upload_failed'), 'aria-label': t('upload_failed'), on: { click: () => void this.#upload(one) } }, icon('retry'));
    const item = h(
      'li',
      { 'data-testid': 'attachment' },
      h('button', { type: 'button', class: 'thumb', title: t('picture_place', { n: number }), 'aria-label': t('picture_place', { n: number }), on: { click: () => this.options.onPlace(number) } }, image, h('span', null, String(number))),
      again,
      bar,
      iconButton('close', t('picture_remove', { n: number }), () => this.#remove(one), { class: 'drop', 'data-testid': 'remove-picture' }),
    );
    return { item, image, bar, again };
  }
}
