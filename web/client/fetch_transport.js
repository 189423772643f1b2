// A stream over fetch: the token and the place travel in headers, every byte counts as a sign of life.
import { errorOf } from './requests.js';
import { SseParser } from './sse_parser.js';
import { ROUTES } from './contract.js';
import { SeqlineError } from './errors.js';

/**
 * @typedef {object} StreamRequest
 * @property {string | null} position
 * @property {string | null} device
 * @property {AbortSignal} signal
 * @property {(block: import('./sse_parser.js').SseBlock) => void} onBlock
 * @property {() => void} onLife something was heard
 */
/** @typedef {(request: StreamRequest) => Promise<void>} Transport resolves when the stream ends, rejects when it cannot be had */

/**
 * @param {import('./requests.js').Requests} requests
 * @returns {Transport}
 */
export function fetchTransport(requests) {
    return async ({ position, device, signal, onBlock, onLife }) => {
        /** @type {Record<string, string>} */
        const headers = { Accept: 'text/event-stream' };
        if (position !== null) headers['Last-Event-ID'] = position;
        const response = await requests.send(requests.url(ROUTES.getEvents[1], { device }), { method: 'GET', headers, signal });
        if (!response.ok) throw await errorOf(response);
        if (!(response.headers.get('Content-Type') ?? '').startsWith('text/event-stream') || response.body === null) {
            await response.body?.cancel().catch(() => undefined);
            throw new SeqlineError(0, 'answer', 'the answer is not a stream');
        }
        onLife();
        const parser = new SseParser();
        const reader = response.body.getReader();
        try {
            for (;;) {
                const { done, value } = await reader.read();
                if (done) return;
                if (signal.aborted) throw signal.reason;
                onLife();
                for (const block of parser.push(value)) onBlock(block);
            }
        } finally {
            reader.cancel().catch(() => undefined);
        }
    };
}
