/**
 * What a message says: words with links, pictures in their places, what is shared.
 */

import { h, icon } from './element.js';
import { told } from './errors.js';
import { PICTURE_MARK } from './summary.js';
import { t } from './words.js';

/** @typedef {import('./types.js').MediaItem} MediaItem */
/** @typedef {import('./types.js').Share} Share */
/** @typedef {import('./types.js').Page} Page */

/** Only addresses of the web, and nothing that a sentence puts behind them. */
const LINK = /\bhttps?:\/\/[^\s<>"'`\u200b-\u200f\u202a-\u202e\u2060-\u2069]+/giu;
const BEHIND = /[.,;:!?'"\u3002\uff0c\uff1b\uff1a\uff01\uff1f\u300b\u300d\u2019\u201d]+$/u;
/** Longest side of a picture on the screen, in pixels. */
const SIDE_MAX = 340;
/** Shortest side of one. */
const SIDE_MIN = 48;

/**
 * Words as nodes, addresses as links.
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function words(text) {
  /** @type {(Node | string)[]} */
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(LINK)) {
    let address = found[0].replace(BEHIND, '');
    // A bracket that was opened before the address closes behind it.
    if (address.endsWith(')') && !address.includes('(')) address = address.slice(0, -1);
    if (!URL.canParse(address)) continue;
    nodes.push(text.slice(from, found.index), link(address, address));
    from = found.index + address.length;
  }
  nodes.push(text.slice(from));
  return nodes.filter((node) => node !== '');
}

/**
 * @param {string} address
 * @param {string} text
 */
function link(address, text) {
  return h('a', { href: address, target: '_blank', rel: 'noopener noreferrer nofollow' }, text);
}

/**
 * Text and pictures in order; pictures that no mark places come after the text.
 * @param {string} body
 * @param {MediaItem[]} media
 */
export function parts(body, media) {
  /** @type {({ text: string } | { picture: MediaItem })[]} */
  const found = [];
  const left = new Map(media.map((item) => [item.id, item]));
  const all = new Map(left);
  let from = 0;
  for (const mark of body.matchAll(PICTURE_MARK)) {
    const picture = all.get(mark[1] ?? '');
    if (!picture) continue;
    found.push({ text: body.slice(from, mark.index) }, { picture });
    left.delete(picture.id);
    from = mark.index + mark[0].length;
  }
  found.push({ text: body.slice(from) });
  for (const picture of left.values()) found.push({ picture });
  return found.filter((part) => 'picture' in part || part.text.trim() !== '');
}

/**
 * @param {Page} page
 * @param {string} body
 * @param {MediaItem[]} media
 * @param {string} alt
 */
export function bodyOf(page, body, media, alt) {
  if (media.length === 0) return [h('div', { class: 'words', dir: 'auto', 'data-testid': 'body' }, words(body))];
  return parts(body, media).map((part) =>
    'picture' in part
      ? picture(page, part.picture, alt)
      : h('div', { class: 'words', dir: 'auto', 'data-testid': 'body' }, words(part.text.replace(/^\n|\n$/g, ''))),
  );
}

/**
 * A picture whose place on the screen is known before a byte of it has come.
 * @param {Page} page
 * @param {MediaItem} item
 * @param {string} alt
 */
export function picture(page, item, alt) {
  const [width, height] = [item.width || 240, item.height || 180];
  const scale = Math.min(1, SIDE_MAX / width, SIDE_MAX / height);
  // Neither a line that cannot be hit nor a tower: what is very long and narrow is cut to what can be shown.
  const [wide, high] = [width, height].map((side) => Math.max(SIDE_MIN, Math.round(side * scale)));
  const image = h('img', { width: String(width), height: String(height), alt, decoding: 'async', draggable: 'false', 'data-testid': 'picture' });
  const frame = h('button', { type: 'button', class: 'picture', 'aria-label': t('picture_open') }, image);
  frame.style.width = `${wide}px`;
  frame.style.aspectRatio = `${wide} / ${high}`;
  frame.addEventListener('click', () => {
    if (frame.classList.contains('failed')) load(page, item.id, image, frame);
    else void showLarge(page, item.id, alt);
  });
  load(page, item.id, image, frame);
  return frame;
}

/**
 * @param {Page} page
 * @param {string} id
 * @param {HTMLImageElement} image
 * @param {HTMLElement} frame
 */
function load(page, id, image, frame) {
  page.chat.mediaUrl(id).then(
    (/** @type {string} */ url) => {
      image.src = url;
      if (frame.classList.contains('failed')) frame.replaceChildren(image);
      frame.classList.remove('failed');
      frame.setAttribute('aria-label', t('picture_open'));
    },
    () => {
      frame.classList.add('failed');
      frame.removeAttribute('aria-label');
      frame.replaceChildren(icon('warning'), t('picture_failed'), h('span', { class: 'again' }, t('retry')));
    },
  );
}

/**
 * @param {Page} page
 * @param {string} id
 * @param {string} alt
 */
async function showLarge(page, id, alt) {
  // The address of a picture that was shown long ago may be gone.
  const src = await told(page.chat.mediaUrl(id));
  if (!src) return;
  const dialog = h('dialog', { class: 'lightbox', 'aria-label': alt, 'data-testid': 'lightbox' }, h('img', { src, alt }));
  dialog.addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** @param {Share} share */
export function shareCard(share) {
  if (share.deleted) return h('div', { class: 'share gone' }, t('share_gone'));
  const title = share.title ?? `${share.type} ${share.id}`;
  const url = share.url && /^https?:\/\//i.test(share.url) && URL.canParse(share.url) ? share.url : null;
  return h('div', { class: 'share' }, url ? link(url, title) : h('bdi', null, title), url ? h('small', null, new URL(url).host) : null);
}
