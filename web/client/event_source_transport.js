// A stream over the browser's own EventSource, for places where fetch cannot stream. It cannot send headers, so a ticket stands in the URL
// (never the token). It shows no comments, so silence is told from death by asking the log.
import { LIVE_EVENTS, LOGGED_EVENTS, ROUTES, STREAM_EVENTS } from './contract.js';
import { SeqlineError } from './errors.js';

/**
 * @param {import('./requests.js').Requests} requests
 * @param {import('./contract.js').Api} api
 * @param {{ Source?: typeof EventSource, silenceMs: number }} options `silenceMs`: after that much silence the log is asked
 * @returns {import('./fetch_transport.js').Transport}
 */
export function eventSourceTransport(requests, api, { Source = globalThis.EventSource, silenceMs }) {
    return async ({ position, device, signal, onBlock, onLife }) => {
        if (!Source) throw new SeqlineError(0, 'answer', 'there is no EventSource here');
        const { ticket } = await api.makeTicket({ signal });
        const url = requests.url(ROUTES.getEvents[1], { ticket, last_event_id: position, device });
        let at = position;
        await new Promise((resolve, reject) => {
            const source = new Source(url);
            let heard = performance.now();
            const end = (/** @type {unknown} */ error) => {
                clearInterval(probe);
                signal.removeEventListener('abort', stop);
                source.close();
                if (error) reject(error);
                else resolve(undefined);
            };
            const stop = () => end(signal.reason);
            const probe = setInterval(async () => {
                if (performance.now() - heard < silenceMs) return onLife();
                try {
                    const { events, resync } = await api.pollEvents({ query: { limit: 1, ...(at === null ? {} : { after: at }) }, signal });
                    if (performance.now() - heard < silenceMs) return;
                    if (events.length > 0 || resync) end(new SeqlineError(0, 'network', 'the stream has fallen silent'));
                    else onLife();
                } catch (error) {
                    end(error);
                }
            }, Math.max(50, silenceMs / 3));
            signal.addEventListener('abort', stop, { once: true });
            source.onopen = () => onLife();
            // The browser's own reconnect has no back-off and no new ticket; ours has both.
            source.onerror = () => end(opened ? null : new SeqlineError(0, 'network', 'the stream cannot be opened'));
            let opened = false;
            for (const name of [...LOGGED_EVENTS, ...LIVE_EVENTS, ...STREAM_EVENTS]) {
                source.addEventListener(name, (event) => {
                    opened = true;
                    heard = performance.now();
                    onLife();
                    const { data, lastEventId } = /** @type {MessageEvent} */ (event);
                    /** @type {import('./sse_parser.js').SseBlock} */
                    const block = { event: name, data, hasData: true };
                    // What has no id of its own comes with that of the event before it.
                    if (lastEventId !== '' && lastEventId !== at) block.id = at = lastEventId;
                    onBlock(block);
                });
            }
        });
    };
}
