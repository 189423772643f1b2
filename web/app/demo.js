/**
 * Two people on one screen, each in a frame with a page, a connection and a device of its own.
 */

import { avatar, fill, h } from './element.js';
import { locale, t } from './words.js';

const PEOPLE = ['ann', 'bob'];

/** @param {HTMLElement} root @param {string} names of two users, with a comma between them; Ann and Bob when empty */
export async function mountDemo(root, names) {
  document.documentElement.lang = locale();
  const [one, two] = names.split(',').map((name) => name.trim());
  const users = one && two ? [one, two] : PEOPLE;
  const trial = await fetch('/demo/token', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ user: users[0] }) }).catch(() => null);
  if (!trial?.ok) {
    return fill(root, h('main', { class: 'empty' }, h('strong', null, t('demo_title')), t('demo_none')));
  }
  const frames = users.map((user, place) => [
    h('h2', null, avatar(user, user, true), t('demo_pane', { name: user })),
    h('iframe', { src: `/?${new URLSearchParams({ as: user, with: users[1 - place] ?? '' })}`, title: t('demo_pane', { name: user }), 'data-testid': `pane-${place + 1}`, allow: 'clipboard-write' }),
  ]);
  fill(root, h('main', { class: 'demo' }, h('h1', { class: 'visually-hidden' }, t('demo_title')), frames.map(([head, frame]) => h('section', null, head, frame))));
}
