// Pictures: sent with progress, shown through object URLs, because an <img> cannot carry a token.
import { ROUTES, fillPath } from './contract.js';
import { errorOf } from './requests.js';
import { SeqlineError } from './errors.js';

/** Object URLs kept; the longest unused is given back. */
const KEPT = 200;
/** Longest time for one picture, in milliseconds. */
const DEADLINE_MS = 120_000;

export class MediaStore {
    /** @type {Map<string, Promise<string>>} */
    #urls = new Map();

    /** @param {import('./requests.js').Requests} requests */
    constructor(requests) {
        this.requests = requests;
    }

    /**
     * @param {Blob} blob
     * @param {{ onProgress?: (share: number) => void, signal?: AbortSignal }} [options] `share` from 0 to 1
     * @returns {Promise<import('./shapes.js').Media>}
     */
    upload(blob, { onProgress, signal } = {}) {
        const url = this.requests.url(ROUTES.postMedia[1]);
        return this.requests.within(DEADLINE_MS, signal, async (ending) => {
            // Only the old way tells how far an upload is.
            if (onProgress && typeof XMLHttpRequest !== 'undefined') return this.#withProgress(url, blob, onProgress, ending);
            onProgress?.(0);
            const response = await this.requests.send(url, { method: 'POST', body: blob, headers: { 'Content-Type': blob.type }, signal: ending });
            if (!response.ok) throw await errorOf(response);
            onProgress?.(1);
            return response.json();
        });
    }

    /**
     * @param {string} url
     * @param {Blob} blob
     * @param {(share: number) => void} onProgress
     * @param {AbortSignal} signal
     * @param {string | null} [rejected]
     * @returns {Promise<any>}
     */
    async #withProgress(url, blob, onProgress, signal, rejected = null) {
        const token = await this.requests.tokens.get(rejected, signal);
        signal.throwIfAborted();
        onProgress(0);
        const { status, text, headers } = await new Promise((resolve, reject) => {
            const request = new XMLHttpRequest();
            const stop = () => request.abort();
            request.open('POST', url);
            request.setRequestHeader('Authorization', `Bearer ${token}`);
            request.setRequestHeader('Content-Type', blob.type);
            // Sent is not taken: all of it is said when the gateway has answered.
            request.upload.onprogress = (event) => onProgress(Math.min(0.99, event.loaded / Math.max(1, event.total, blob.size)));
            request.onload = () => resolve({ status: request.status, text: request.responseText, headers: { 'Retry-After': request.getResponseHeader('Retry-After') ?? '' } });
            request.onerror = () => reject(new SeqlineError(0, 'network', 'the upload was cut off'));
            request.onabort = () => reject(signal.reason);
            request.onloadend = () => signal.removeEventListener('abort', stop);
            signal.addEventListener('abort', stop, { once: true });
            request.send(blob);
        });
        if (status === 401 && rejected === null) return this.#withProgress(url, blob, onProgress, signal, token);
        if (status < 200 || status > 299) throw await errorOf(new Response(text, { status: status < 200 ? 502 : status, headers }));
        onProgress(1);
        return JSON.parse(text);
    }

    /**
     * An object URL of a picture, good until the connection is closed or two hundred others were shown since.
     * @param {string} id
     * @returns {Promise<string>}
     */
    url(id) {
        const kept = this.#urls.get(id);
        if (kept) {
            this.#urls.delete(id);
            this.#urls.set(id, kept);
            return kept;
        }
        const loading = this.requests.within(DEADLINE_MS, undefined, async (signal) => {
            const response = await this.requests.send(this.requests.url(fillPath(ROUTES.getMedia[1], { id })), { method: 'GET', headers: { Accept: 'image/*' }, signal });
            if (!response.ok) throw await errorOf(response);
            const blob = await response.blob();
            // What somebody in between answers instead must not be shown, and kept, in its place.
            if (!blob.type.startsWith('image/')) throw new SeqlineError(0, 'answer', 'the answer is not a picture');
            return URL.createObjectURL(blob);
        });
        this.#urls.set(id, loading);
        // A failure is not kept: the next who asks tries again.
        loading.catch(() => this.#urls.delete(id));
        for (const old of this.#urls.keys()) {
            if (this.#urls.size <= KEPT) break;
            this.#drop(old);
        }
        return loading;
    }

    /** @param {string} id */
    #drop(id) {
        this.#urls.get(id)?.then((url) => URL.revokeObjectURL(url), () => undefined);
        this.#urls.delete(id);
    }

    close() {
        for (const id of [...this.#urls.keys()]) this.#drop(id);
    }
}
