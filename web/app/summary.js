/**
 * A message in a few words: for the list, and for the quote above the field.
 */

import { isolated } from './element.js';
import { pieces, t } from './words.js';

/** @typedef {import('./types.js').Message} Message */
/** @typedef {import('./people.js').People} People */

/** Where a picture stands in a text. */
export const PICTURE_MARK = /!\[img:([^\]]+)\]/g;

/**
 * Plain words of a message, without marks of pictures.
 * @param {Message} message
 */
export function inShort(message) {
  if (message.deleted_at) return t('deleted_message');
  if (message.kind === 'share') return message.share?.title ?? t('a_share');
  const words = message.kind === 'image' ? message.body.replace(PICTURE_MARK, ' ').trim() : message.body;
  if (message.kind === 'image') return words ? `${t('a_picture')} · ${words}` : t('a_picture');
  return words;
}

/**
 * What the timeline says by itself, as pieces with isolated names.
 * @param {Message} message
 * @param {People} people
 * @param {string | null} me
 * @returns {(Node | string)[]}
 */
export function happened(message, people, me) {
  const data = message.data ?? {};
  /** @param {string} user */
  const who = (user) => isolated(user === me ? t('you') : people.name(user), 'who');
  const by = String(data.by ?? message.sender);
  const whom = String(data.user_id ?? data.owner ?? message.sender);
  switch (data.type) {
    case 'member.joined':
      return by === whom ? pieces('did_join', { who: who(whom) }) : pieces('did_invite', { who: who(by), whom: who(whom) });
    case 'member.left':
      return pieces('did_leave', { who: who(whom) });
    case 'member.removed':
      return pieces('did_remove', { who: who(by), whom: who(whom) });
    case 'conversation.renamed':
      return pieces('did_rename', { who: who(by), title: isolated(String(data.title ?? '')) });
    case 'owner.changed':
      return pieces('did_hand_over', { whom: who(whom) });
    case 'conversation.dissolved':
      return pieces('did_dissolve', {});
    default:
      return pieces('did_something', {});
  }
}

/**
 * @param {string[]} users
 * @param {People} people
 * @returns {(Node | string)[]}
 */
export function typingWords(users, people) {
  const [a, b] = users;
  if (a === undefined) return [];
  if (b === undefined) return pieces('typing_1', { a: isolated(people.name(a)) });
  if (users.length === 2) return pieces('typing_2', { a: isolated(people.name(a)), b: isolated(people.name(b)) });
  return pieces('typing_many', {});
}
