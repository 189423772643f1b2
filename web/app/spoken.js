/**
 * What is read out to who cannot see it. One place that is there from the beginning: what stands in the page itself is drawn anew too often
 * to be read out each time.
 */

import { h } from './element.js';

const place = h('div', { class: 'visually-hidden', role: 'status', 'aria-live': 'polite', 'data-testid': 'spoken' });

/** Puts it into the page; called before there is anything to say. */
export function listen() {
  if (!place.isConnected) document.body.append(place);
  place.textContent = '';
}

/** @param {string} text */
export function speak(text) {
  place.textContent = text;
}
