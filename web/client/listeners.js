// Callbacks and async iterators over what happens.
import { SeqlineError } from './errors.js';

/** Events that wait for a slow iterator before it is told to read everything anew. */
const WAITING_MAX = 10_000;

/**
 * @typedef {object} Happenings what is told under which name
 * @property {import('./connection.js').ChatState} state
 * @property {{ id: string | null }} conversations
 * @property {{ id: string }} timeline
 * @property {{ id: string, users: string[] }} typing
 * @property {{ unread: number, total: number, conversations: number }} badge
 * @property {{ id: string }} outbox
 * @property {unknown} error
 * @property {RawEvent} event
 */
/** @typedef {import('./shapes.js').ChatEvent | { type: 'resync', data: { reason: string } }} RawEvent */

export class Listeners {
    /** @type {Map<string, Set<(what: any) => void>>} */
    #callbacks = new Map();
    /** Told once a turn, however often it happens. @type {Map<string, () => void>} */
    #soon = new Map();
    /** @type {Set<() => void>} */
    #ends = new Set();
    closed = false;

    /** @param {((error: unknown) => void) | undefined} [onError] hears of errors beside those who listen to them */
    constructor(onError) {
        this.onError = onError;
    }

    /**
     * @template {keyof Happenings} K
     * @param {K} name
     * @param {(what: Happenings[K]) => void} callback
     * @returns {() => void} stops it
     */
    on(name, callback) {
        let all = this.#callbacks.get(name);
        if (!all) this.#callbacks.set(name, (all = new Set()));
        const own = (/** @type {Happenings[K]} */ what) => callback(what);
        all.add(own);
        return () => void all.delete(own);
    }

    /**
     * @template {keyof Happenings} K
     * @param {K} name
     * @param {Happenings[K]} what
     */
    tell(name, what) {
        if (this.closed) return;
        for (const callback of [...(this.#callbacks.get(name) ?? [])]) {
            try {
                callback(what);
            } catch (error) {
                // One listener's fault is not the others', nor the stream's.
                if (name === 'error' || (!this.onError && !this.#callbacks.get('error')?.size)) unheard(error);
                else this.fault(error);
            }
        }
    }

    /**
     * Something went wrong.
     * @param {unknown} error
     */
    fault(error) {
        this.tell('error', error);
        try {
            this.onError?.(error);
        } catch (thrown) {
            unheard(thrown);
        }
    }

    /**
     * @template {keyof Happenings} K
     * @param {K} name
     * @param {string} key
     * @param {() => Happenings[K]} what read when it is told
     */
    tellSoon(name, key, what) {
        const whole = `${name} ${key}`;
        if (this.#soon.size === 0) {
            queueMicrotask(() => {
                const all = [...this.#soon.values()];
                this.#soon.clear();
                for (const tell of all) tell();
            });
        }
        this.#soon.set(whole, () => this.tell(name, what()));
    }

    /**
     * Events in order, from the call on.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {AsyncGenerator<RawEvent, void, void>}
     */
    events({ signal } = {}) {
        /** @type {RawEvent[]} */
        let waiting = [];
        /** @type {() => void} */
        let wake = () => undefined;
        let over = this.closed || (signal?.aborted ?? false);
        const off = this.on('event', (event) => {
            waiting.push(event);
            if (waiting.length > WAITING_MAX) waiting = [{ type: 'resync', data: { reason: 'slow' } }];
            wake();
        });
        const end = () => {
            over = true;
            off();
            wake();
        };
        signal?.addEventListener('abort', end, { once: true });
        this.#ends.add(end);
        const ends = this.#ends;
        return (async function* () {
            try {
                while (!over) {
                    const event = waiting.shift();
                    if (event) yield event;
                    else await new Promise((resolve) => (wake = () => resolve(undefined)));
                }
            } finally {
                off();
                ends.delete(end);
                signal?.removeEventListener('abort', end);
            }
        })();
    }

    close() {
        this.closed = true;
        this.#soon.clear();
        this.#callbacks.clear();
        for (const end of [...this.#ends]) end();
    }
}

/**
 * A fault that nobody hears is thrown where nobody catches it, so that it is seen.
 * @param {unknown} error
 */
function unheard(error) {
    queueMicrotask(() => {
        throw error;
    });
}

/** What is thrown at those who go on using what was closed. */
export const closedError = () => new SeqlineError(0, 'closed', 'the connection was closed');
