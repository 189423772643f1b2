/**
 * What people are called. Names come with conversations and members; of others they are asked for once, all that are wanted together.
 */

import { visible } from './element.js';

/** @typedef {import('./types.js').Summary} Summary */

export class People {
  /** @type {Map<string, string>} */
  #names = new Map();
  /** @type {Set<string>} */
  #asked = new Set();
  /** @type {Set<() => void>} */
  #listeners = new Set();
  /** Grows when a name becomes known, so that what shows names can tell that it is old. */
  version = 0;

  /** @param {import('./types.js').Chat} chat */
  constructor(chat) {
    this.chat = chat;
  }

  /** @param {string} user */
  name(user) {
    const known = this.#names.get(user);
    if (known !== undefined) return known;
    if (!this.#asked.has(user)) {
      this.#asked.add(user);
      void this.#ask(user);
    }
    return user;
  }

  /**
   * @param {string} user
   * @param {string | null | undefined} name
   */
  learn(user, name) {
    // A name of which nothing can be seen could be anybody's; the id is somebody's.
    if (!name || !visible(name) || this.#names.get(user) === name) return;
    this.#names.set(user, name);
    this.#asked.add(user);
    this.#tell();
  }

  /** @param {Summary[]} conversations */
  learnFrom(conversations) {
    for (const one of conversations) if (one.peer) this.learn(one.peer, one.peer_profile?.name);
  }

  /** @param {() => void} listener */
  onChange(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** @param {string} user */
  async #ask(user) {
    try {
      const profile = await this.chat.api.getUser({ path: { user_id: user } });
      this.learn(user, profile.name);
    } catch {
      // The id serves; it is asked for again when the page is.
    }
  }

  #tell() {
    this.version += 1;
    if (this.#waiting) return;
    this.#waiting = true;
    queueMicrotask(() => {
      this.#waiting = false;
      for (const listener of this.#listeners) listener();
    });
  }

  #waiting = false;
}

/**
 * What a conversation is called.
 * @param {Summary} conversation
 * @param {string} otherwise for a group that has no other members
 */
export function titleOf(conversation, otherwise) {
  return [conversation.title, conversation.display_name, conversation.peer].find((one) => one && visible(one)) ?? otherwise;
}
