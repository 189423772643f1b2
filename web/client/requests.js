// Requests with the token, a deadline, and one renewal of a token that has expired.
import { SeqlineError } from './errors.js';
import { joined, unlessAborted } from './signals.js';

/** @typedef {(asked: { rejected: string | null, signal?: AbortSignal }) => Promise<string> | string} GetToken */

/** Longest wait for an answer, in milliseconds. */
const DEADLINE_MS = 20_000;

/** Longest wait for a token, in milliseconds; then it is asked for anew. */
const TOKEN_MS = 20_000;

/** The token of now, asked for once however many need it. */
export class TokenHolder {
    /** @type {Promise<string> | null} */
    #asking = null;
    /** @type {string | null} */
    token = null;
    /** Whose connection this is, from the first token on. @type {string | null} */
    #subject = null;

    /**
     * @param {GetToken} getToken
     * @param {{ signal?: AbortSignal, withinMs?: number }} [options] `signal` ends everything
     */
    constructor(getToken, { signal, withinMs = TOKEN_MS } = {}) {
        this.getToken = getToken;
        this.signal = signal;
        this.withinMs = withinMs;
    }

    /**
     * The token; a new one when the one of now is the one that was rejected.
     * @param {string | null} [rejected]
     * @param {AbortSignal} [signal] ends the waiting of this one caller
     * @returns {Promise<string>}
     */
    async get(rejected = null, signal) {
        if (this.token !== null && this.token !== rejected) return this.token;
        this.#asking ??= this.#ask(rejected).finally(() => (this.#asking = null));
        return unlessAborted(this.#asking, signal);
    }

    /** @param {string | null} rejected */
    async #ask(rejected) {
        const late = new AbortController();
        const timer = setTimeout(() => late.abort(new SeqlineError(0, 'timeout', `getToken gave nothing within ${this.withinMs} ms`)), this.withinMs);
        const ending = joined(this.signal, late.signal);
        try {
            const token = await unlessAborted(Promise.resolve(this.getToken({ rejected, signal: ending.signal })), ending.signal);
            if (typeof token !== 'string' || token === '') throw new SeqlineError(401, 'unauthenticated', 'getToken gave no token');
            // Somebody else has signed in: nothing of this connection (its place, what it has to send) is theirs.
            const subject = subjectOf(token);
            if (this.#subject !== null && subject !== this.#subject) throw new SeqlineError(401, 'unauthenticated', 'getToken gave a token of somebody else');
            this.#subject = subject;
            return (this.token = token);
        } finally {
            clearTimeout(timer);
            ending.free();
        }
    }
}

/**
 * The `sub` of a JWT, or null when it cannot be read. It is only used to name things; the gateway is who checks.
 * @param {string} token
 * @returns {string | null}
 */
export function subjectOf(token) {
    try {
        const part = (token.split('.')[1] ?? '').replaceAll('-', '+').replaceAll('_', '/');
        const bytes = Uint8Array.from(atob(part), (char) => char.charCodeAt(0));
        const sub = JSON.parse(new TextDecoder().decode(bytes)).sub;
        return typeof sub === 'string' ? sub : null;
    } catch {
        return null;
    }
}

/**
 * Milliseconds that `Retry-After` asks for; null when it is not there.
 * @param {Headers} headers
 */
export function retryAfterMs(headers) {
    const value = headers.get('Retry-After');
    if (value === null || value.trim() === '') return null;
    const seconds = Number(value);
    if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
    const at = Date.parse(value);
    return Number.isNaN(at) ? null : Math.max(0, at - Date.now());
}

/**
 * The error that an answer tells.
 * @param {Response} response
 */
export async function errorOf(response) {
    const wait = retryAfterMs(response.headers);
    const retryAfter = wait === null ? null : wait / 1000;
    let problem = null;
    try {
        problem = await response.json();
    } catch {
        // A proxy's page, or nothing.
    }
    const known = problem !== null && typeof problem === 'object' && typeof problem.code === 'string';
    if (!known) return new SeqlineError(response.status, 'answer', `the answer was ${response.status}`, { retryAfter });
    const fields = typeof problem.field === 'string' ? [problem.field] : [];
    return new SeqlineError(response.status, problem.code, String(problem.detail ?? problem.title ?? problem.code), { retryAfter, fields });
}

export class Requests {
    /**
     * @param {{ baseUrl: string, tokens: TokenHolder, signal: AbortSignal, locale?: string, fetch?: typeof fetch }} options `signal` ends everything
     */
    constructor({ baseUrl, tokens, signal, locale, fetch: doFetch }) {
        this.baseUrl = baseUrl.replace(/\/+$/, '');
        this.tokens = tokens;
        this.signal = signal;
        this.locale = locale;
        this.fetch = doFetch ?? globalThis.fetch.bind(globalThis);
        /** Milliseconds that the last answers took, by method. @type {Record<string, number>} */
        this.latencies = {};
        this.request = this.request.bind(this);
    }

    /**
     * @param {string} path
     * @param {Record<string, any>} [query] what is undefined or null is left out
     */
    url(path, query = {}) {
        const words = new URLSearchParams();
        for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null) words.set(name, String(value));
        const text = words.toString();
        return `${this.baseUrl}${path}${text === '' ? '' : `?${text}`}`;
    }

    /**
     * JSON in, JSON out; undefined for 204.
     * @param {string} method
     * @param {string} path
     * @param {import('./contract.js').CallArgs} [args]
     * @returns {Promise<any>}
     */
    async request(method, path, { query, body, headers, signal, deadlineMs = DEADLINE_MS } = {}) {
        /** @type {Record<string, string>} */
        const all = { Accept: 'application/json', ...headers };
        if (body !== undefined) all['Content-Type'] = 'application/json';
        /** @type {RequestInit} */
        const init = { method, headers: all };
        if (body !== undefined) init.body = JSON.stringify(body);
        if (signal) init.signal = signal;
        const begun = performance.now();
        return this.within(deadlineMs, signal, async (ending) => {
            const response = await this.send(this.url(path, query), { ...init, signal: ending });
            if (!response.ok) throw await errorOf(response);
            const text = response.status === 204 ? '' : await response.text();
            this.latencies[method] = Math.round(performance.now() - begun);
            try {
                return text === '' ? undefined : JSON.parse(text);
            } catch (error) {
                // Cut off by something in between: whether it was done is not known.
                throw new SeqlineError(0, 'answer', 'the answer cannot be read', { cause: error });
            }
        });
    }

    /**
     * A request with the token; with a new one, once, when that has expired. Any other answer is the caller's.
     * @param {string} url
     * @param {RequestInit} init
     */
    async send(url, init) {
        for (let rejected = null; ; ) {
            const token = await this.tokens.get(rejected, init.signal ?? undefined);
            /** @type {Record<string, string>} */
            const headers = { Authorization: `Bearer ${token}`, .../** @type {Record<string, string>} */ (init.headers) };
            if (this.locale) headers['Accept-Language'] = this.locale;
            const response = await this.fetch(url, { ...init, headers, credentials: 'omit', cache: 'no-store', referrerPolicy: 'no-referrer' });
            if (response.status !== 401 || rejected !== null) return response;
            // It may be another one by now, asked for by somebody else.
            await response.arrayBuffer().catch(() => undefined);
            rejected = token;
        }
    }

    /**
     * Something that must end within a time; what it throws becomes a SeqlineError, but for the caller's own abort.
     * @template T
     * @param {number} deadlineMs
     * @param {AbortSignal | undefined} signal
     * @param {(ending: AbortSignal) => Promise<T>} work
     * @returns {Promise<T>}
     */
    async within(deadlineMs, signal, work) {
        const late = new AbortController();
        const timer = setTimeout(() => late.abort(), deadlineMs);
        const ending = joined(late.signal, this.signal, signal);
        try {
            return await unlessAborted(work(ending.signal), ending.signal);
        } catch (error) {
            if (signal?.aborted) throw signal.reason;
            if (this.signal.aborted) throw new SeqlineError(0, 'closed', 'the connection was closed');
            if (late.signal.aborted) throw new SeqlineError(0, 'timeout', `no answer within ${deadlineMs} ms`);
            if (error instanceof SeqlineError) throw error;
            throw new SeqlineError(0, 'network', error instanceof Error ? error.message : String(error), { cause: error });
        } finally {
            clearTimeout(timer);
            ending.free();
        }
    }
}
