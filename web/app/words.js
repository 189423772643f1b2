/**
 * The words of the page, in the reader's language.
 */

import { forGood } from './kept.js';
import { en } from './words_en.js';
import { zh } from './words_zh.js';

/** @typedef {keyof typeof en} Word */
/** @typedef {'en' | 'zh'} Language */

/** @type {{ [language in Language]: { [word in Word]: string } }} */
const ALL = { en, zh };
const KEPT = 'seqline.language';

/** @type {Language} */
let language = chosen();

/** @returns {Language} */
function chosen() {
  const kept = forGood.get(KEPT);
  if (kept === 'en' || kept === 'zh') return kept;
  return (navigator.languages ?? [navigator.language]).find((wanted) => /^(en|zh)\b/i.test(wanted))?.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

/** @returns {Language} */
export function currentLanguage() {
  return language;
}

/** The language in the form that `lang` and `Intl` take. */
export function locale() {
  if (language === 'zh') return 'zh-CN';
  return (navigator.languages ?? []).find((wanted) => /^en\b/i.test(wanted)) ?? 'en';
}

/** @param {Language} wanted */
export function setLanguage(wanted) {
  language = wanted;
  forGood.set(KEPT, wanted);
}

/**
 * @param {Word} word
 * @param {{[name: string]: string | number}} [values] what stands for `{name}`
 */
export function t(word, values) {
  const text = ALL[language][word];
  return values ? text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? '')) : text;
}

/**
 * A sentence that counts; `word` has a form that ends in `_one` and one that ends in `_other`.
 * @param {'unread' | 'read_by' | 'members' | 'new_below' | 'reactions' | 'missing' | 'picture_left' | 'pictures_failed' | 'spoken'} word
 * @param {number} n
 * @param {{[name: string]: string | number}} [values]
 */
export function tn(word, n, values) {
  const form = new Intl.PluralRules(locale()).select(n) === 'one' ? 'one' : 'other';
  return t(/** @type {Word} */ (`${word}_${form}`), { n: new Intl.NumberFormat(locale()).format(n), ...values });
}

/** The word in every language: what was written in one may be read in another. @param {Word} word */
export function inEveryLanguage(word) {
  return Object.values(ALL).map((words) => words[word]);
}

/**
 * A sentence in which a name stands, as pieces: names stay isolated elements and never become part of a string.
 * @param {Word} word
 * @param {{[name: string]: Node | string}} values
 * @returns {(Node | string)[]}
 */
export function pieces(word, values) {
  return ALL[language][word].split(/(\{\w+\})/).map((piece) => {
    const name = /^\{(\w+)\}$/.exec(piece)?.[1];
    return name ? (values[name] ?? '') : piece;
  });
}
