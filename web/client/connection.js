// Everything of one user's connection, put together: who am I, where was I, who of the tabs listens, and what becomes of what is heard.
import { sleep } from './backoff.js';
import { BadgeCount } from './badge.js';
import { bindApi, LIVE_EVENTS, LOGGED_EVENTS } from './contract.js';
import { Conversation } from './conversation.js';
import { ConversationList } from './conversation_list.js';
import { asSeqlineError, SeqlineError } from './errors.js';
import { EventStream } from './event_stream.js';
import { eventSourceTransport } from './event_source_transport.js';
import { fetchTransport } from './fetch_transport.js';
import { insist } from './gap_filler.js';
import { Listeners } from './listeners.js';
import { MediaStore } from './media.js';
import { Outbox } from './outbox.js';
import { watchPage } from './page_life.js';
import { Position } from './position.js';
import { Push } from './push.js';
import { ReadMarks } from './read_marks.js';
import { Requests, subjectOf, TokenHolder } from './requests.js';
import { joined } from './signals.js';
import { defaultStore, withFallback } from './store.js';
import { alone, Tabs } from './tabs.js';
import { Typing } from './typing.js';
import { uuidv7 } from './uuidv7.js';

/**
 * @typedef {object} Surroundings what a browser has, and tests have otherwise
 * @property {import('./tabs.js').Locks | null} [locks]
 * @property {typeof BroadcastChannel | null} [Channel]
 * @property {Document} [document]
 * @property {EventTarget} [window]
 * @property {typeof EventSource} [EventSource]
 * @property {typeof fetch} [fetch]
 * @property {() => number} [random]
 */
/**
 * @typedef {object} ConnectOptions
 * @property {string} [baseUrl] where the gateways are; the page's origin when absent
 * @property {import('./requests.js').GetToken} getToken gives a token; a new one when `rejected` is the one it gave before
 * @property {string} [device] name of this device; made and kept in the store when absent
 * @property {import('./store.js').Store} [storage]
 * @property {'fetch' | 'eventsource'} [transport]
 * @property {number} [heartbeatMs] as the gateways have it; three of them without a byte and the stream is opened afresh
 * @property {string} [locale]
 * @property {string} [worker] path of the service worker that shows pushes
 * @property {(error: unknown) => void} [onError]
 * @property {Surroundings} [surroundings]
 */
/** @typedef {import('./event_stream.js').StreamState & { leader: boolean, position: string | null, lastEventAt: number | null, latencies: Record<string, number> }} ChatState */
/**
 * @typedef {object} Parts what a conversation works with
 * @property {import('./contract.js').Api} api
 * @property {ConversationList} list
 * @property {Outbox} outbox
 * @property {Typing} typing
 * @property {ReadMarks} reads
 * @property {() => string | null} me
 * @property {Map<string, string>} peers the other one, of single conversations that may not be made yet
 * @property {AbortSignal} signal
 * @property {(id: string) => void} onTimeline
 * @property {(error: unknown) => void} onError
 */

/** Ids of events remembered to tell a second time from a first. */
const SEEN = 4_096;
/** Default of the gateways, in milliseconds. */
const HEARTBEAT_MS = 15_000;
/** Longest wait before everything is read again, in milliseconds. */
const SPREAD_MS_MAX = 60_000;

export class Chat {
    #ending = new AbortController();
    #listeners;
    /** @type {Map<string, Conversation>} */
    #conversations = new Map();
    /** @type {Set<string>} */
    #seen = new Set();
    /** @type {import('./event_stream.js').StreamState} */
    #stream = { phase: 'connecting', attempt: 0, retryAt: null, reason: null };
    /** Recoveries under way or waiting. */
    #recovering = 0;
    #started = false;
    #lastEventAt = /** @type {number | null} */ (null);
    #heardAt = performance.now();
    /** How far the tab that leads had told when it was last heard; undefined: not heard yet. @type {string | null | undefined} */
    #followed;
    /** @type {Tabs | null} */
    #tabs = null;
    /** @type {Position | null} */
    #position = null;
    /** @type {EventStream | null} */
    #events = null;
    /** @type {Outbox} */
    #outbox;
    /** Where the stream begins when no place is known. @type {string | null} */
    #head = null;
    /** @type {Promise<string> | null} */
    #listed = null;
    /** @type {string | null} */
    me = null;

    /** @param {ConnectOptions} options */
    constructor(options) {
        const { baseUrl = globalThis.location?.origin, getToken, storage, locale, worker, surroundings = browser() } = options;
        if (!baseUrl) throw new TypeError('baseUrl is missing');
        this.options = options;
        this.surroundings = surroundings;
        this.heartbeatMs = options.heartbeatMs ?? HEARTBEAT_MS;
        const { signal } = this.#ending;
        this.#listeners = new Listeners(options.onError);
        this.tokens = new TokenHolder(getToken, { signal });
        // Where nothing can be written down for other tabs to see, this one sends what it has by itself.
        const onFailure = () => queueMicrotask(() => this.#started && !signal.aborted && !this.#outbox.running && void this.#outbox.run(signal));
        this.store = storage ? withFallback(storage, { onFailure }) : defaultStore({ onFailure });
        const more = { ...(locale ? { locale } : {}), ...(surroundings.fetch ? { fetch: surroundings.fetch } : {}) };
        this.requests = new Requests({ baseUrl, tokens: this.tokens, signal, ...more });
        /** @type {import('./contract.js').Api} */
        this.api = bindApi(this.requests.request);
        const { api } = this;
        const me = () => this.me;
        const random = surroundings.random ?? Math.random;
        this.badgeCount = new BadgeCount({ api, signal, onChange: () => this.#listeners.tellSoon('badge', '', () => ({ ...this.badge, total: this.badge.unread })) });
        const typing = new Typing({
            send: (id, is) => api.postTyping({ path: { id }, body: { typing: is }, signal }),
            onChange: (id) => {
                this.conversations.touch();
                this.#listeners.tell('typing', { id, users: typing.users(id) });
                this.#listeners.tellSoon('conversations', id, () => ({ id }));
            },
        });
        this.conversations = new ConversationList({
            api, signal, me, typing: (id) => typing.users(id),
            onChange: (id, before, after) => {
                this.badgeCount.changed(before, after);
                if (after?.me) this.parts.reads.known(after.id, after.me.read_seq);
                this.#listeners.tellSoon('conversations', id ?? '', () => ({ id }));
            },
        });
        const reads = new ReadMarks({
            send: (id, seq, waiting) => api.postRead({ path: { id }, body: { seq }, signal: waiting }),
            onMoved: (id, position) => this.conversations.read(id, position),
            visible: () => surroundings.document === undefined || surroundings.document.visibilityState === 'visible',
            signal,
        });
        this.#outbox = new Outbox({
            store: this.store, random,
            send: (id, body, waiting) => api.send({ path: { id }, body, signal: waiting }),
            onSent: (message) => this.#conversations.get(message.conversation_id)?.taken(message),
            onChange: (id) => {
                this.#listeners.tellSoon('outbox', id, () => ({ id }));
                this.#listeners.tellSoon('timeline', id, () => ({ id }));
            },
            tell: () => this.#tabs?.post({ kind: 'outbox' }),
        });
        /** @type {Parts} */
        this.parts = {
            api, list: this.conversations, outbox: this.#outbox, typing, reads, me, peers: new Map(), signal,
            onTimeline: (id) => this.#listeners.tellSoon('timeline', id, () => ({ id })),
            onError: (error) => this.#listeners.fault(error),
        };
        this.media = new MediaStore(this.requests);
        this.push = new Push({ api, store: this.store, me, ...(worker ? { worker } : {}) });
        const back = () => this.reconnect();
        const { document, window } = surroundings;
        watchPage({ document, window, signal, onBack: back, onAside: () => this.#tabs?.stepDown(), onReturn: () => this.#tabs?.queue() });
        void this.#start(signal).catch((error) => signal.aborted || this.#listeners.fault(error));
    }

    /** @returns {ChatState} */
    get state() {
        const phase = this.#recovering > 0 && this.#stream.phase === 'live' ? 'recovering' : this.#stream.phase;
        return { ...this.#stream, phase, leader: this.#tabs?.leads ?? false, position: this.#position?.value ?? null, lastEventAt: this.#lastEventAt, latencies: { ...this.requests.latencies } };
    }

    get badge() {
        return this.badgeCount.value;
    }

    /** What waits to be sent, in all conversations. */
    get outbox() {
        return this.#outbox.items();
    }

    /**
     * @template {keyof import('./listeners.js').Happenings} K
     * @param {K} name
     * @param {(what: import('./listeners.js').Happenings[K]) => void} callback
     * @returns {() => void} stops it
     */
    on(name, callback) {
        return this.#listeners.on(name, callback);
    }

    /**
     * The contract's events in order, without doubles, from now on.
     * @param {{ signal?: AbortSignal }} [options]
     */
    events(options) {
        return this.#listeners.events(options);
    }

    /**
     * The same object for the same id.
     * @param {string} id
     * @param {{ peer?: string }} [options] the other one, when the conversation may not be made yet
     */
    conversation(id, { peer } = {}) {
        if (peer !== undefined) this.parts.peers.set(id, peer);
        let one = this.#conversations.get(id);
        if (!one) this.#conversations.set(id, (one = new Conversation(id, this.parts)));
        return one;
    }

    /**
     * @param {import('./shapes.js').CreateConversation} body
     * @param {{ signal?: AbortSignal, key?: string }} [options] `key`: the same for every try to make the same group
     */
    async createConversation(body, { signal, key } = {}) {
        const headers = body.kind === 'group' ? { 'Idempotency-Key': key ?? uuidv7() } : {};
        const info = await this.api.createConversation({ body, headers, ...(signal ? { signal } : {}) });
        this.conversations.put(info);
        return info;
    }

    /**
     * @param {Blob} blob
     * @param {{ onProgress?: (share: number) => void, signal?: AbortSignal }} [options]
     */
    upload(blob, options) {
        return this.media.upload(blob, options);
    }

    /** @param {string} id of a picture */
    mediaUrl(id) {
        return this.media.url(id);
    }

    /** Opens the stream afresh from its place, and tries at once what waits to be tried. */
    reconnect() {
        if (this.#tabs?.leads) this.#events?.reconnect();
        else {
            this.#tabs?.post({ kind: 'nudge' });
            this.#tabs?.post({ kind: 'who' });
        }
        this.#outbox.wake();
    }

    /** Ends everything; leaves no timer and no socket. What waits to be sent stays in the store: it is there when this resolves. */
    async close() {
        if (this.#ending.signal.aborted) return;
        this.#setStream({ phase: 'stopped', attempt: 0, retryAt: null, reason: 'closed' });
        this.#ending.abort(new SeqlineError(0, 'closed', 'the connection was closed'));
        this.#tabs?.close();
        this.parts.typing.close();
        this.media.close();
        this.#listeners.close();
        await Promise.all([this.#outbox.settle(), this.#position?.close()]);
        if (!this.options.storage) this.store.close?.();
    }

    /** @param {AbortSignal} signal */
    async #start(signal) {
        const token = await this.#signIn(signal);
        signal.throwIfAborted();
        this.me = subjectOf(token);
        const name = `seqline:${this.requests.baseUrl}:${this.me ?? ''}`;
        const device = this.options.device ?? (await this.#device());
        signal.throwIfAborted();
        this.#outbox.begin(`outbox:${name}:`);
        const position = (this.#position = new Position(this.store, `position:${name}`));
        const transport = this.options.transport === 'eventsource'
            ? eventSourceTransport(this.requests, this.api, { silenceMs: 3 * this.heartbeatMs, ...(this.surroundings.EventSource ? { Source: this.surroundings.EventSource } : {}) })
            : fetchTransport(this.requests);
        this.#events = new EventStream({
            transport, tokens: this.tokens, device, heartbeatMs: this.heartbeatMs,
            position: async () => (await position.load()) ?? this.#head ?? (await (this.#listed ??= this.#refresh())),
            lost: async () => {
                await position.forget();
                this.#head = this.#listed = null;
                this.#recover(0);
            },
            onFrame: (frame) => {
                const after = position.value;
                this.#hear(frame, true);
                this.#tabs?.post({ kind: 'frame', frame, after });
            },
            onState: (state) => this.#setStream(state),
            ...(this.surroundings.random ? { random: this.surroundings.random } : {}),
        });
        const { locks = null, Channel = null } = this.surroundings;
        this.#tabs = new Tabs(name, {
            locks, Channel,
            onMessage: (message) => this.#told(message),
            onLead: (leading) => this.#lead(leading),
            onFollow: () => {
                this.#followed = position.value;
                this.#setStream(this.#stream);
            },
        });
        void this.#outbox.load().catch((error) => this.#listeners.fault(error));
        // The list before the stream: the place from which it is to be opened comes with it, when none is known.
        const listed = (this.#listed = this.#refresh());
        this.#tabs.queue();
        if (this.#tabs.shared) this.#watchLeader(signal);
        const sending = alone(this.store.shared ? locks : null, `${name}:outbox`, signal, () => this.#outbox.run(signal));
        sending.catch(() => undefined);
        this.#started = true;
        await listed;
        this.badgeCount.ask(0);
        void this.push.restore().catch(() => undefined);
    }

    /** @param {AbortSignal} signal */
    async #signIn(signal) {
        for (let wait = 500; ; wait = Math.min(wait * 2, 30_000)) {
            try {
                return await this.tokens.get();
            } catch (error) {
                this.#listeners.fault(error);
                this.#setStream({ phase: 'signed-out', attempt: 0, retryAt: Date.now() + wait, reason: asSeqlineError(error).code });
                await sleep(wait, signal);
            }
        }
    }

    async #device() {
        const kept = await this.store.get('device').catch(() => undefined);
        if (typeof kept === 'string') return kept;
        const made = uuidv7();
        await this.store.set('device', made).catch(() => undefined);
        return made;
    }

    /** @returns {Promise<string>} the place before which everything is in the list */
    async #refresh() {
        const head = await insist((signal) => this.conversations.refresh({ signal }), this.#ending.signal, { refused: (error) => this.#listeners.fault(error) });
        this.#head ??= head;
        return head;
    }

    /** @param {AbortSignal} leading */
    async #lead(leading) {
        const either = joined(leading, this.#ending.signal);
        const beat = this.#tabs?.shared ? setInterval(() => this.#tabs?.post({ kind: 'beat', after: this.#position?.value }), this.heartbeatMs) : null;
        try {
            await this.#events?.run(either.signal);
        } finally {
            either.free();
            if (beat !== null) clearInterval(beat);
            await this.#position?.flush();
        }
    }

    /**
     * Takes the stream over from a tab that holds it and is not heard any more.
     * @param {AbortSignal} signal
     */
    #watchLeader(signal) {
        this.#tabs?.post({ kind: 'who' });
        const timer = setInterval(() => {
            const visible = this.surroundings.document?.visibilityState !== 'hidden';
            if (this.#tabs?.leads || !visible || performance.now() - this.#heardAt < 4 * this.heartbeatMs) return;
            this.#heardAt = performance.now();
            this.#tabs?.queue({ steal: true });
        }, this.heartbeatMs);
        signal.addEventListener('abort', () => clearInterval(timer), { once: true });
    }

    /** @param {any} message of another tab */
    #told(message) {
        if (message.kind === 'outbox') return void this.#outbox.load().catch(() => undefined);
        if (this.#tabs?.leads) {
            if (message.kind === 'who') this.#tabs.post({ kind: 'state', state: this.#stream, after: this.#position?.value });
            if (message.kind === 'nudge' && (this.#stream.phase !== 'live' || (this.#events?.silentFor ?? 0) > this.heartbeatMs)) this.#events?.reconnect();
            return;
        }
        if (message.kind === 'frame' || message.kind === 'state' || message.kind === 'beat') {
            this.#heardAt = performance.now();
            this.#follow(message.after);
        }
        if (message.kind === 'frame') {
            this.#hear(message.frame, false);
            if (message.frame.id !== null) this.#followed = message.frame.id;
        }
        if (message.kind === 'state') this.#setStream(message.state);
    }

    /**
     * A page that was put aside does not hear what is told meanwhile. The tab that leads says with each word how far it had told before: if
     * that is not what was heard here, something was not.
     * @param {string | null | undefined} after
     */
    #follow(after) {
        if (after === undefined) return;
        const missed = typeof this.#followed === 'string' && this.#followed !== after;
        this.#followed = after;
        if (missed) this.#recover(0);
    }

    /** @param {import('./event_stream.js').StreamState} state */
    #setStream(state) {
        this.#stream = state;
        if (this.#tabs?.leads) this.#tabs.post({ kind: 'state', state });
        this.#listeners.tell('state', this.state);
    }

    /**
     * What the stream says, here or in the tab that has it.
     * @param {import('./event_stream.js').Frame} frame
     * @param {boolean} write whether the place is this tab's to write down
     */
    #hear(frame, write) {
        if (frame.kind === 'event') {
            try {
                this.#handle(frame);
            } catch (error) {
                this.#listeners.fault(error);
            }
        }
        if (frame.id !== null) this.#position?.move(frame.id, { write });
    }

    /** @param {Extract<import('./event_stream.js').Frame, { kind: 'event' }>} frame */
    #handle({ name, id, data }) {
        if (name === 'resync') {
            this.#recover(Number(data?.spread_ms) || 0);
            this.#listeners.tell('event', { type: 'resync', data });
            return;
        }
        if (!KNOWN.has(name) || data === null) return;
        if (id !== null) {
            if (this.#seen.has(id)) return;
            this.#seen.add(id);
            if (this.#seen.size > SEEN) this.#seen.delete(/** @type {string} */ (this.#seen.values().next().value));
        }
        /** @type {import('./shapes.js').ChatEvent} */
        const event = data;
        this.#lastEventAt = Date.now();
        if (id !== null) this.requests.latencies.deliver = Math.max(0, Date.now() - Date.parse(event.occurred_at));
        if (event.type === 'typing.updated') this.parts.typing.heard(event.conversation_id, event.data.user_id, event.data.typing);
        if (event.type === 'message.created') {
            this.parts.typing.heard(event.conversation_id, event.data.message.sender, false);
            if (event.data.message.sender === this.me) this.#outbox.confirm(event.data.message.client_id);
        }
        this.conversations.apply(event);
        this.#conversations.get(event.conversation_id)?.apply(event);
        this.#listeners.tell('event', event);
    }

    /**
     * The stream could not tell everything: the list is read again, and every open conversation asks what changed.
     * @param {number} spreadMs
     */
    #recover(spreadMs) {
        const { signal } = this.#ending;
        this.conversations.fallBehind();
        for (const one of this.#conversations.values()) one.fallBehind();
        const random = this.surroundings.random ?? Math.random;
        this.#recovering += 1;
        this.#listeners.tell('state', this.state);
        void (async () => {
            try {
                await sleep(random() * Math.min(spreadMs, SPREAD_MS_MAX), signal);
                await this.#refresh();
                await Promise.all([...this.#conversations.values()].map((one) => one.catchUp(signal)));
                this.badgeCount.ask(0);
            } catch (error) {
                if (!signal.aborted) this.#listeners.fault(error);
            } finally {
                this.#recovering -= 1;
                this.#listeners.tell('state', this.state);
            }
        })();
    }
}

/** @type {Set<string>} */
const KNOWN = new Set([...LOGGED_EVENTS, ...LIVE_EVENTS]);

/** @returns {Surroundings} */
function browser() {
    const { navigator, document, BroadcastChannel: Channel } = globalThis;
    return { locks: navigator?.locks ?? null, Channel: Channel ?? null, document, window: typeof globalThis.addEventListener === 'function' ? globalThis : undefined };
}
