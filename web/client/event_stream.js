// The stream of one user, kept alive: opened, watched, opened again from the place where it stood, for as long as it is wanted.
import { Backoff, Pause } from './backoff.js';
import { asSeqlineError } from './errors.js';

/** @typedef {'connecting' | 'live' | 'recovering' | 'waiting' | 'signed-out' | 'stopped'} Phase */
/** @typedef {{ phase: Phase, attempt: number, retryAt: number | null, reason: string | null }} StreamState */
/** @typedef {{ kind: 'event', name: string, id: string | null, data: any } | { kind: 'place', id: string }} Frame */

/** Longest wait between two tries, in milliseconds. */
const CAP_MS = 30_000;
/** Longest wait while nobody is signed in. */
const SIGNED_OUT_MS = 60_000;

export class EventStream {
    /** @type {AbortController | null} */
    #connection = null;
    #pause = new Pause();
    #hurry = false;
    #heardAt = 0;
    /** What the server last asked for, used once. @type {number | null} */
    #retryMs = null;

    /**
     * @param {object} options
     * @param {import('./fetch_transport.js').Transport} options.transport
     * @param {import('./requests.js').TokenHolder} options.tokens
     * @param {() => Promise<string | null>} options.position where to open it; has its own retries
     * @param {() => Promise<void>} options.lost the place that was asked for cannot be read by the server
     * @param {string | null} options.device
     * @param {number} options.heartbeatMs
     * @param {(frame: Frame) => void} options.onFrame
     * @param {(state: StreamState) => void} options.onState
     * @param {() => number} [options.random]
     */
    constructor({ transport, tokens, position, lost, device, heartbeatMs, onFrame, onState, random = Math.random }) {
        this.transport = transport;
        this.tokens = tokens;
        this.position = position;
        this.lost = lost;
        this.device = device;
        this.silenceMs = 3 * heartbeatMs;
        this.onFrame = onFrame;
        this.onState = onState;
        this.backoff = new Backoff({ capMs: CAP_MS, random });
        this.random = random;
    }

    /** Milliseconds since something was last heard. */
    get silentFor() {
        return performance.now() - this.#heardAt;
    }

    /** Opens it afresh now, whatever it is doing. */
    reconnect() {
        this.#hurry = true;
        this.backoff.reset();
        this.#connection?.abort(new Error('asked to connect again'));
        this.#pause.wake();
    }

    /**
     * Goes on until the signal aborts; never gives up, never rejects.
     * @param {AbortSignal} signal
     */
    async run(signal) {
        while (!signal.aborted) {
            this.#hurry = false;
            const { wait, phase, reason } = await this.#once(signal);
            if (signal.aborted) break;
            if (this.#hurry || wait <= 0) continue;
            this.onState({ phase, attempt: this.backoff.attempt, retryAt: Date.now() + wait, reason });
            await this.#pause.wait(wait, signal).catch(() => undefined);
        }
    }

    /**
     * One connection; says how long to wait before the next.
     * @param {AbortSignal} outer
     * @returns {Promise<{ wait: number, phase: Phase, reason: string }>}
     */
    async #once(outer) {
        const connection = (this.#connection = new AbortController());
        const signal = AbortSignal.any([outer, connection.signal]);
        this.onState({ phase: 'connecting', attempt: this.backoff.attempt, retryAt: null, reason: null });
        /** Why the server said that it ends. @type {string | null} */
        let farewell = null;
        let live = false;
        /** @type {ReturnType<typeof setTimeout> | null} */
        let dog = null;
        const onLife = () => {
            this.#heardAt = performance.now();
            if (dog !== null) clearTimeout(dog);
            dog = setTimeout(() => connection.abort(new Error('the stream has fallen silent')), this.silenceMs);
        };
        try {
            const position = await this.position();
            onLife();
            await this.transport({
                position, device: this.device, signal, onLife,
                onBlock: (block) => {
                    if (signal.aborted) return;
                    if (block.retry !== undefined) this.#retryMs = block.retry;
                    if (['goodbye', 'token_expired', 'unavailable'].includes(block.event)) farewell = block.event;
                    if (block.event === 'hello' && !live) {
                        live = true;
                        this.backoff.reset();
                        this.onState({ phase: 'live', attempt: 0, retryAt: null, reason: null });
                    }
                    this.#hand(block);
                },
            });
            return await this.#ended(farewell, live);
        } catch (error) {
            if (outer.aborted) return { wait: 0, phase: 'stopped', reason: 'stopped' };
            if (connection.signal.aborted) return { wait: this.#hurry ? 0 : this.#next(), phase: 'waiting', reason: String(connection.signal.reason?.message) };
            return await this.#failed(asSeqlineError(error));
        } finally {
            if (dog !== null) clearTimeout(dog);
            connection.abort();
            this.#connection = null;
        }
    }

    /** @param {import('./sse_parser.js').SseBlock} block */
    #hand(block) {
        if (!block.hasData) {
            if (block.id !== undefined) this.onFrame({ kind: 'place', id: block.id });
            return;
        }
        let data;
        try {
            data = JSON.parse(block.data);
        } catch {
            data = null;
        }
        this.onFrame({ kind: 'event', name: block.event, id: block.id ?? null, data });
    }

    /**
     * @param {string | null} farewell
     * @param {boolean} live
     * @returns {Promise<{ wait: number, phase: Phase, reason: string }>}
     */
    async #ended(farewell, live) {
        if (farewell === 'token_expired') {
            await this.tokens.get(this.tokens.token);
            return { wait: live ? 0 : this.#next(), phase: 'waiting', reason: farewell };
        }
        return { wait: this.#next(), phase: 'waiting', reason: farewell ?? 'cut' };
    }

    #next(atLeastMs = 0) {
        const asked = this.#retryMs ?? 0;
        this.#retryMs = null;
        return this.backoff.next({ atLeastMs: Math.max(atLeastMs, asked) });
    }

    /**
     * @param {import('./errors.js').SeqlineError} error
     * @returns {Promise<{ wait: number, phase: Phase, reason: string }>}
     */
    async #failed(error) {
        const reason = error.code;
        if (error.status === 401) {
            const wait = Math.round(1000 + this.random() * Math.min(SIGNED_OUT_MS, 1000 * 2 ** this.backoff.attempt++));
            return { wait, phase: 'signed-out', reason };
        }
        if (error.code === 'invalid_cursor') await this.lost();
        return { wait: this.#next((error.retryAfter ?? 0) * 1000), phase: 'waiting', reason };
    }
}
