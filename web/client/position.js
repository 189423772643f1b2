// The place in one's log: kept while the page lives and written down now and then. A place that is too old costs events that are seen
// twice and told apart by their ids; one that is too new would cost events, so it moves only after what stands there was handed on.

/** At most one write in this time, in milliseconds. */
const WRITE_EVERY_MS = 500;

export class Position {
    /** @type {string | null} */
    value = null;
    /** @type {ReturnType<typeof setTimeout> | null} */
    #timer = null;
    #closed = false;

    /**
     * @param {import('./store.js').Store} store
     * @param {string} key
     */
    constructor(store, key) {
        this.store = store;
        this.key = key;
    }

    /** Reads what was written down, unless a newer place is known. */
    async load() {
        const kept = await this.store.get(this.key);
        if (this.value === null && typeof kept === 'string') this.value = kept;
        return this.value;
    }

    /**
     * @param {string} id
     * @param {{ write: boolean }} how only the tab that has the stream writes
     */
    move(id, { write }) {
        this.value = id;
        if (!write || this.#closed || this.#timer !== null) return;
        this.#timer = setTimeout(() => {
            this.#timer = null;
            void this.#write();
        }, WRITE_EVERY_MS);
    }

    async forget() {
        this.value = null;
        await this.store.delete(this.key).catch(() => undefined);
    }

    async #write() {
        if (this.value !== null) await this.store.set(this.key, this.value).catch(() => undefined);
    }

    /** Writes at once what waits to be written. */
    async flush() {
        if (this.#timer === null) return;
        clearTimeout(this.#timer);
        this.#timer = null;
        await this.#write();
    }

    close() {
        this.#closed = true;
        return this.flush();
    }
}
