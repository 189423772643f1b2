// The stream of one user, kept alive: opened, watched, opened again from the place where it stood, for as long as it is wanted.
import { Backoff, Pause } from './backoff.js';
import { asSeqlineError } from './errors.js';
import { joined } from './signals.js';

/** @typedef {'connecting' | 'live' | 'recovering' | 'waiting' | 'signed-out' | 'stopped'} Phase */
/** @typedef {{ phase: Phase, attempt: number, retryAt: number | null, reason: string | null }} StreamState */
/** @typedef {{ kind: 'event', name: string, id: string | null, data: any } | { kind: 'place', id: string }} Frame */

/** Longest wait between two tries, in milliseconds. */
const CAP_MS = 30_000;
/** Longest wait while nobody is signed in. */
const SIGNED_OUT_MS = 60_000;
/** Longest wait after an end that was announced, in milliseconds: all streams of a gateway that leaves end in one moment, and all come back. */
const FAREWELL_MS = 1_000;
/** A stream that was announced to end before it lived so long is no reason to hurry, in milliseconds. */
const SETTLED_MS = 10_000;

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
        this.farewells = new Backoff({ baseMs: FAREWELL_MS, capMs: CAP_MS, random });
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
        const both = joined(outer, connection.signal);
        const { signal } = both;
        this.onState({ phase: 'connecting', attempt: this.backoff.attempt, retryAt: null, reason: null });
        /** Why the server said that it ends. @type {string | null} */
        let farewell = null;
        /** When it was live. @type {number | null} */
        let since = null;
        let token = this.tokens.token;
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
                    if (block.event === 'hello' && since === null) {
                        since = performance.now();
                        token = this.tokens.token;
                        this.backoff.reset();
                        this.onState({ phase: 'live', attempt: 0, retryAt: null, reason: null });
                    }
                    this.#hand(block);
                },
            });
            return await this.#ended(farewell, { since, token });
        } catch (error) {
            if (outer.aborted) return { wait: 0, phase: 'stopped', reason: 'stopped' };
            if (connection.signal.aborted) return { wait: this.#hurry ? 0 : this.#next(), phase: 'waiting', reason: String(connection.signal.reason?.message) };
            return await this.#failed(asSeqlineError(error));
        } finally {
            if (dog !== null) clearTimeout(dog);
            connection.abort();
            both.free();
            this.#connection = null;
        }
    }

    /** @param {import('./sse_parser.js').SseBlock} block */
    #hand(block) {
        // An empty id would send us to the end of the log, past what was missed.
        const id = block.id || null;
        if (!block.hasData) {
            if (id !== null) this.onFrame({ kind: 'place', id });
            return;
        }
        let data;
        try {
            data = JSON.parse(block.data);
        } catch {
            data = null;
        }
        this.onFrame({ kind: 'event', name: block.event, id, data });
    }

    /**
     * Announced, it comes back soon: at once with a new token, after a moment from a gateway that leaves. Its `retry:` is for what is cut off.
     * @param {string | null} farewell
     * @param {{ since: number | null, token: string | null }} stream when it was live, and by which token
     * @returns {Promise<{ wait: number, phase: Phase, reason: string }>}
     */
    async #ended(farewell, { since, token }) {
        if (since !== null && (farewell === 'token_expired' || farewell === 'goodbye')) {
            if (farewell === 'token_expired') await this.tokens.get(token);
            this.#retryMs = null;
            if (performance.now() - since >= SETTLED_MS) this.farewells.reset();
            const atOnce = farewell === 'token_expired' && this.farewells.attempt === 0;
            const wait = this.farewells.next();
            return { wait: atOnce ? 0 : wait, phase: 'waiting', reason: farewell };
        }
        if (farewell === 'token_expired') await this.tokens.get(token);
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
