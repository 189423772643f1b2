/**
 * Times and numbers as the reader writes them.
 */

import { locale, t } from './words.js';

/** @type {Map<string, Intl.DateTimeFormat>} */
const formats = new Map();

/** @param {Intl.DateTimeFormatOptions} options */
function format(options) {
  const key = locale() + JSON.stringify(options);
  let made = formats.get(key);
  if (!made) {
    made = new Intl.DateTimeFormat(locale(), options);
    formats.set(key, made);
  }
  return made;
}

/** @param {string | number | Date} at */
export function clockTime(at) {
  return format({ hour: '2-digit', minute: '2-digit' }).format(new Date(at));
}

/** @param {string | number | Date} at */
export function fullTime(at) {
  return format({ dateStyle: 'medium', timeStyle: 'short' }).format(new Date(at));
}

/** The reader's own day, as a word that can be compared. @param {string | number | Date} at */
export function dayKey(at) {
  const day = new Date(at);
  return `${day.getFullYear()}-${day.getMonth()}-${day.getDate()}`;
}

/** @param {string | number | Date} at */
export function dayName(at) {
  const day = new Date(at);
  const now = new Date();
  if (dayKey(day) === dayKey(now)) return t('today');
  now.setDate(now.getDate() - 1);
  if (dayKey(day) === dayKey(now)) return t('yesterday');
  const sameYear = day.getFullYear() === new Date().getFullYear();
  return format({ weekday: 'long', day: 'numeric', month: 'long', ...(sameYear ? {} : { year: 'numeric' }) }).format(day);
}

/** For the list: the time of today, else the day. @param {string | number | Date} at */
export function shortTime(at) {
  const day = new Date(at);
  const now = new Date();
  if (dayKey(day) === dayKey(now)) return clockTime(day);
  if (now.getTime() - day.getTime() < 6 * 86_400_000) return format({ weekday: 'short' }).format(day);
  return format(day.getFullYear() === now.getFullYear() ? { day: 'numeric', month: 'short' } : { dateStyle: 'short' }).format(day);
}
