// How far one has read: only what was in view of a visible page, only forward, a few requests a second at most.
import { Backoff, sleep } from './backoff.js';
import { asSeqlineError } from './errors.js';

/** Milliseconds between two marks of one conversation. */
const EVERY_MS = 300;

export class ReadMarks {
    /** The furthest that was seen, by conversation. @type {Map<string, number>} */
    #seen = new Map();
    /** The furthest that the server has, by conversation. @type {Map<string, number>} */
    #known = new Map();
    /** @type {Set<string>} */
    #busy = new Set();

    /**
     * @param {object} options
     * @param {(conversationId: string, seq: number, signal: AbortSignal) => Promise<import('./shapes.js').ReadPosition>} options.send
     * @param {(conversationId: string, position: import('./shapes.js').ReadPosition) => void} options.onMoved
     * @param {() => boolean} options.visible whether somebody can see the page
     * @param {AbortSignal} options.signal
     */
    constructor({ send, onMoved, visible, signal }) {
        this.send = send;
        this.onMoved = onMoved;
        this.visible = visible;
        this.signal = signal;
    }

    /**
     * Read up to here elsewhere, or told by the server.
     * @param {string} conversationId
     * @param {number} seq
     */
    known(conversationId, seq) {
        this.#known.set(conversationId, Math.max(seq, this.#known.get(conversationId) ?? 0));
    }

    /**
     * Was in view. On a hidden page nothing is: it has to be said again when the page is seen.
     * @param {string} conversationId
     * @param {number} seq
     */
    seen(conversationId, seq) {
        if (!this.visible() || this.signal.aborted) return;
        if (seq <= Math.max(this.#seen.get(conversationId) ?? 0, this.#known.get(conversationId) ?? 0)) return;
        this.#seen.set(conversationId, seq);
        if (!this.#busy.has(conversationId)) void this.#tell(conversationId);
    }

    /** @param {string} conversationId */
    async #tell(conversationId) {
        this.#busy.add(conversationId);
        const backoff = new Backoff();
        try {
            for (;;) {
                await sleep(EVERY_MS, this.signal);
                const seq = this.#seen.get(conversationId) ?? 0;
                if (seq <= (this.#known.get(conversationId) ?? 0)) return;
                try {
                    const position = await this.send(conversationId, seq, this.signal);
                    backoff.reset();
                    this.known(conversationId, Math.max(seq, position.read_seq));
                    this.onMoved(conversationId, position);
                } catch (thrown) {
                    const error = asSeqlineError(thrown);
                    if (!error.temporary && error.status !== 401) {
                        // Refused. It may be said again: who was let in anew sees the same messages again.
                        this.#seen.delete(conversationId);
                        return;
                    }
                    await sleep(backoff.next({ atLeastMs: (error.retryAfter ?? 0) * 1000 }), this.signal);
                }
            }
        } catch {
            // Closed.
        } finally {
            this.#busy.delete(conversationId);
        }
    }
}
