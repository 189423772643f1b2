/**
 * Under the hood: where the stream stands, what came last, how long things take.
 */

import { fill, h, iconButton } from './element.js';
import { t } from './words.js';

/** How often it is drawn anew, in milliseconds. */
const EVERY_MS = 500;
const EVENTS_MAX = 8;

/** @param {import('./types.js').Chat} chat */
export function debugPanel(chat) {
  /** @type {string[]} */
  const events = [];
  const facts = h('dl');
  const log = h('ol', { 'data-testid': 'debug-events' });
  const element = h('aside', { class: 'debug', 'aria-label': t('debug'), 'data-testid': 'debug-panel' }, h('header', null, h('strong', null, t('debug')), iconButton('close', t('close'), () => destroy())), facts, log);
  const off = chat.on('event', (/** @type {any} */ event) => {
    events.unshift(`${new Date().toISOString().slice(11, 23)} ${event.type} ${event.id ?? ''}`);
    events.length = Math.min(events.length, EVENTS_MAX);
    show();
  });
  const timer = setInterval(() => show(), EVERY_MS);
  function show() {
    const { state } = chat;
    /** @type {[string, unknown][]} */
    const rows = [
      ['phase', state.phase],
      ['leader', state.leader],
      ['attempt', state.attempt],
      ['reason', state.reason],
      ['position', state.position],
      ['last event', state.lastEventAt ? `${((Date.now() - new Date(state.lastEventAt).getTime()) / 1_000).toFixed(1)} s ago` : null],
      ...Object.entries(state.latencies ?? {}).map(([name, value]) => /** @type {[string, unknown]} */ ([name, typeof value === 'number' ? `${Math.round(value)} ms` : JSON.stringify(value)])),
      ['rows in the page', document.querySelectorAll('.entries > *').length],
    ];
    fill(facts, rows.filter(([, value]) => value !== null && value !== undefined && value !== '').flatMap(([name, value]) => [h('dt', null, name), h('dd', { 'data-testid': `debug-${name.replace(/\W+/g, '-')}` }, String(value))]));
    fill(log, events.map((line) => h('li', null, line)));
  }
  function destroy() {
    clearInterval(timer);
    off();
    element.remove();
  }
  show();
  return { element, destroy };
}
