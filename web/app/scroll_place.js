/**
 * Where one is in a list that scrolls, held by what is in view and not by a number of pixels.
 */

export class Place {
  /** What was in view, from above, with the distance of each from the top of the view. @type {{ row: Element, top: number }[]} */
  #noted = [];

  /**
   * @param {HTMLElement} view what scrolls
   * @param {HTMLElement} rows what holds the rows
   */
  constructor(view, rows) {
    this.view = view;
    this.rows = rows;
  }

  /** Notes what is in view now. */
  note() {
    const { top, bottom } = this.view.getBoundingClientRect();
    this.#noted = [];
    const children = this.rows.children;
    for (let place = this.#firstBelow(top); place < children.length && this.#noted.length < 12; place += 1) {
      const row = /** @type {Element} */ (children[place]);
      const box = row.getBoundingClientRect();
      if (box.top > bottom) break;
      this.#noted.push({ row, top: box.top - top });
    }
  }

  /** Scrolls by as much as what was in view has moved. */
  restore() {
    const still = this.#noted.find(({ row }) => row.isConnected);
    if (!still) return;
    const moved = still.row.getBoundingClientRect().top - this.view.getBoundingClientRect().top - still.top;
    if (Math.abs(moved) >= 0.5) this.view.scrollTop += moved;
  }

  /** Does something to the rows and keeps what is in view in its place. @param {() => void} change */
  keep(change) {
    this.note();
    change();
    this.restore();
  }

  /** The last row that is in view to its end. */
  lastVisible() {
    const { bottom } = this.view.getBoundingClientRect();
    const children = this.rows.children;
    let place = this.#firstBelow(bottom + 1) - 1;
    for (; place >= 0; place -= 1) {
      const row = /** @type {Element} */ (children[place]);
      if (row.tagName === 'ARTICLE' && row.getBoundingClientRect().bottom <= bottom + 4) return row;
    }
    return null;
  }

  /** The seq of the last message that is in view to its end; 0 when there is none. */
  lastWholeSeq() {
    if (this.view.clientHeight === 0) return 0;
    let row = this.lastVisible();
    while (row && !(row instanceof HTMLElement && row.dataset.seq)) row = row.previousElementSibling;
    return row instanceof HTMLElement ? Number(row.dataset.seq) : 0;
  }

  /** The first row that ends below `y`, by halving: rows stand in order. @param {number} y */
  #firstBelow(y) {
    const children = this.rows.children;
    let [low, high] = [0, children.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (/** @type {Element} */ (children[middle]).getBoundingClientRect().bottom > y) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
