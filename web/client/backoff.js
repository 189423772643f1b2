// How long to wait before another try: full jitter below a ceiling that doubles, without an end to the tries.
import { joined } from './signals.js';

/** What a server asks for is waited out up to this, in milliseconds: a slip in a header must not silence somebody for days (nor, past 2^31, not at all). */
const ASKED_MS_MAX = 600_000;

export class Backoff {
    /**
     * @param {{ baseMs?: number, capMs?: number, random?: () => number }} [options]
     */
    constructor({ baseMs = 500, capMs = 30_000, random = Math.random } = {}) {
        this.baseMs = baseMs;
        this.capMs = capMs;
        this.random = random;
        this.attempt = 0;
    }

    /**
     * The next wait in milliseconds.
     * @param {{ atLeastMs?: number }} [floor] what the server asked for; it is waited out, and the jitter comes on top
     */
    next({ atLeastMs = 0 } = {}) {
        const ceiling = Math.min(this.capMs, this.baseMs * 2 ** Math.min(this.attempt, 30));
        this.attempt += 1;
        return Math.round(Math.min(ASKED_MS_MAX, atLeastMs) + this.random() * ceiling);
    }

    reset() {
        this.attempt = 0;
    }
}

/**
 * Waits; rejects with the signal's reason when that aborts. Leaves no timer behind.
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function sleep(ms, signal) {
    return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason);
        const done = () => {
            signal?.removeEventListener('abort', stop);
            resolve();
        };
        const timer = setTimeout(done, ms);
        const stop = () => {
            clearTimeout(timer);
            reject(signal?.reason);
        };
        signal?.addEventListener('abort', stop, { once: true });
    });
}

/**
 * A wait that can be cut short, without an error.
 */
export class Pause {
    /** @type {(() => void) | null} */
    #wake = null;

    /**
     * @param {number} ms
     * @param {AbortSignal} signal
     */
    async wait(ms, signal) {
        const cut = new AbortController();
        const either = joined(signal, cut.signal);
        this.#wake = () => cut.abort();
        try {
            await sleep(ms, either.signal);
        } catch (error) {
            if (signal.aborted) throw error;
        } finally {
            either.free();
            this.#wake = null;
        }
    }

    /** Ends the wait that is going on, if one is. */
    wake() {
        this.#wake?.();
    }
}
