/**
 * What the browser keeps for the page: settings for good, the token for the tab. Where it keeps nothing (forbidden, or full), what is set
 * here lives as long as the page does, and nothing fails.
 */

export class Kept {
  /** What could not be written down. @type {Map<string, string | null>} */
  #memory = new Map();

  /** @param {() => Storage} storage asked for each time: where it is forbidden, asking already throws */
  constructor(storage) {
    this.storage = storage;
  }

  /** @param {string} key @returns {string | null} */
  get(key) {
    const held = this.#memory.get(key);
    if (held !== undefined) return held;
    try {
      return this.storage().getItem(key);
    } catch {
      return null;
    }
  }

  /** @param {string} key @param {string | null} value null takes it away */
  set(key, value) {
    this.#memory.delete(key);
    try {
      if (value === null) this.storage().removeItem(key);
      else this.storage().setItem(key, value);
    } catch {
      this.#memory.set(key, value);
    }
  }
}

export const forGood = new Kept(() => localStorage);
export const forThisTab = new Kept(() => sessionStorage);
