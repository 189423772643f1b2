// Messages on their way out. One that was written stays here, with its key and its words, until the server has it, the server has refused
// it for good, or its writer has thrown it away. The key is made once for what somebody wanted to say; every try uses it, also after a
// reload, so that a try whose answer was lost is no second message.
import { Backoff, Pause } from './backoff.js';
import { asSeqlineError, SeqlineError } from './errors.js';
import { uuidv7 } from './uuidv7.js';

/** @typedef {{ body?: string, kind?: import('./shapes.js').MessageKind, media?: string[], reply_to?: number, share?: import('./shapes.js').ShareReference, mentions?: string[], peer?: string }} Draft */
/**
 * @typedef {object} OutboxItem
 * @property {string} clientId
 * @property {string} conversationId
 * @property {Draft} draft
 * @property {'waiting' | 'sending' | 'failed'} state
 * @property {{ status: number, code: string, message: string } | null} error why it failed, or why it still waits
 * @property {string} at when it was written, RFC 3339
 * @property {number} order place in its line
 */

/**
 * @param {import('./conversation.js').Words} words
 * @returns {Draft}
 */
export function draftOf({ body, kind, media, replyTo, share, mentions, peer }) {
    /** @type {Draft} */
    const draft = {};
    if (body !== undefined) draft.body = body;
    const sort = kind ?? (media?.length ? 'image' : share ? 'share' : undefined);
    if (sort !== undefined) draft.kind = sort;
    if (media?.length) draft.media = [...media];
    if (replyTo !== undefined) draft.reply_to = replyTo;
    if (share) draft.share = share;
    if (mentions?.length) draft.mentions = [...mentions];
    if (peer !== undefined) draft.peer = peer;
    return draft;
}

export class Outbox {
    /** @type {Map<string, OutboxItem>} */
    #items = new Map();
    /** Lanes at work, by conversation. @type {Map<string, Pause>} */
    #lanes = new Map();
    /** What left it lately: a copy that another tab has not struck out yet must not come back. @type {Set<string>} */
    #gone = new Set();
    #last = 0;
    prefix = '';
    /** @type {AbortSignal | null} */
    #sending = null;

    /**
     * @param {object} options
     * @param {import('./store.js').Store} options.store
     * @param {(conversationId: string, body: import('./shapes.js').SendMessage, signal: AbortSignal) => Promise<import('./shapes.js').Message>} options.send
     * @param {(message: import('./shapes.js').Message) => void} options.onSent
     * @param {(conversationId: string) => void} options.onChange
     * @param {(word: 'changed') => void} [options.tell] other tabs
     * @param {() => number} [options.random]
     */
    constructor({ store, send, onSent, onChange, tell = () => undefined, random = Math.random }) {
        this.store = store;
        this.send = send;
        this.onSent = onSent;
        this.onChange = onChange;
        this.tell = tell;
        this.random = random;
    }

    /**
     * What waits in a conversation, in the order of writing.
     * @param {string} [conversationId] all of them when absent
     */
    items(conversationId) {
        const found = [...this.#items.values()].filter((item) => conversationId === undefined || item.conversationId === conversationId);
        return found.sort((a, b) => a.order - b.order || (a.clientId < b.clientId ? -1 : 1));
    }

    /**
     * @param {string} prefix of the keys in the store: whose messages these are
     */
    begin(prefix) {
        this.prefix = prefix;
        this.#begun();
    }

    /** Reads what was written down, by this page or another. */
    async load() {
        if (this.prefix === '') return;
        // Written down by now; what is written while the store is read may not be in what it gives.
        const settled = [...this.#items.keys()].filter((one) => !this.#writing.has(one));
        const kept = await this.store.entries(this.prefix).catch(() => null);
        if (kept === null) return this.#work();
        const seen = new Set();
        const touched = new Set();
        for (const [, item] of kept) {
            if (this.#gone.has(item.clientId)) continue;
            // A clock that was set back must not put what is written now before what waits.
            this.#last = Math.max(this.#last, item.order);
            seen.add(item.clientId);
            const here = this.#items.get(item.clientId);
            // A lane of this page knows better than the store.
            if (here && this.#sending && here.state === 'sending') continue;
            this.#items.set(item.clientId, item.state === 'sending' && this.#sending ? { ...item, state: 'waiting' } : item);
            touched.add(item.conversationId);
        }
        if (this.store.shared) {
            for (const clientId of settled) {
                const item = this.#items.get(clientId);
                if (!item || seen.has(clientId)) continue;
                this.#items.delete(clientId);
                touched.add(item.conversationId);
            }
        }
        for (const id of touched) this.onChange(id);
        this.#work();
    }

    /** Being written for the first time. @type {Set<string>} */
    #writing = new Set();

    /**
     * @param {string} conversationId
     * @param {Draft} draft
     * @returns {string} its key; it is on the screen at once and sent once it is written down
     */
    add(conversationId, draft) {
        const clientId = uuidv7();
        this.#last = Math.max(Date.now(), this.#last + 1);
        /** @type {OutboxItem} */
        const item = { clientId, conversationId, draft, state: 'waiting', error: null, at: new Date().toISOString(), order: this.#last };
        this.#items.set(clientId, item);
        this.#writing.add(clientId);
        this.onChange(conversationId);
        void this.#keep(item).finally(() => {
            this.#writing.delete(clientId);
            this.tell('changed');
            this.#work();
        });
        return clientId;
    }

    /**
     * Once more, with the same key.
     * @param {string} clientId
     */
    retry(clientId) {
        const item = this.#items.get(clientId);
        if (!item) return;
        if (item.state === 'failed') this.#change(item, { state: 'waiting', error: null });
        this.wake();
        this.#work();
    }

    /**
     * Thrown away. If a try is under way it may still arrive; then it shows as what it is, a message.
     * @param {string} clientId
     */
    discard(clientId) {
        const item = this.#items.get(clientId);
        if (item) this.#strike(item);
    }

    /**
     * The server has this one: from an answer, an event or a page, whichever comes first.
     * @param {string | null | undefined} clientId
     */
    confirm(clientId) {
        const item = clientId ? this.#items.get(clientId) : undefined;
        if (item) this.#strike(item);
    }

    /** Tries at once what waits for its next try. */
    wake() {
        for (const pause of this.#lanes.values()) pause.wake();
    }

    /** Whether this page is the one that sends. */
    get running() {
        return this.#sending !== null;
    }

    /**
     * Sends until the signal aborts. Only one tab of a user may.
     * @param {AbortSignal} signal
     */
    async run(signal) {
        this.#sending = signal;
        await this.load().catch(() => undefined);
        await new Promise((resolve) => (signal.aborted ? resolve(undefined) : signal.addEventListener('abort', () => resolve(undefined), { once: true })));
        this.#sending = null;
    }

    #work() {
        const signal = this.#sending;
        if (!signal || signal.aborted) return;
        for (const item of this.items()) {
            if (item.state === 'failed' || this.#lanes.has(item.conversationId)) continue;
            const pause = new Pause();
            this.#lanes.set(item.conversationId, pause);
            void this.#lane(item.conversationId, pause, signal).finally(() => {
                this.#lanes.delete(item.conversationId);
                if (this.items(item.conversationId).some((one) => one.state !== 'failed' && !this.#writing.has(one.clientId))) this.#work();
            });
        }
    }

    /**
     * One conversation's line, in order: the next is not tried before the one in front is in, refused or thrown away.
     * @param {string} conversationId
     * @param {Pause} pause
     * @param {AbortSignal} signal
     */
    async #lane(conversationId, pause, signal) {
        const backoff = new Backoff({ random: this.random });
        while (!signal.aborted) {
            const item = this.items(conversationId).find((one) => one.state !== 'failed');
            if (!item || this.#writing.has(item.clientId)) return;
            this.#change(item, { state: 'sending' });
            try {
                const message = await this.send(conversationId, { client_id: item.clientId, client_sent_at: item.at, ...item.draft }, signal);
                // Not every 200 is the gateway's (a sign-in page may answer anything): only a message confirms a message.
                const ours = message?.client_id === item.clientId || (!message?.client_id && message?.conversation_id === conversationId && message.seq > 0);
                if (!ours) throw new SeqlineError(0, 'answer', 'the answer is not about this message');
                backoff.reset();
                this.onSent(message);
                this.confirm(item.clientId);
            } catch (thrown) {
                if (signal.aborted) {
                    this.#change(item, { state: 'waiting' });
                    return;
                }
                const now = this.#items.get(item.clientId);
                if (!now) continue;
                const { status, code, message, temporary, retryAfter } = asSeqlineError(thrown);
                const again = temporary || status === 401;
                this.#change(now, { state: again ? 'waiting' : 'failed', error: { status, code, message } });
                if (again) await pause.wait(backoff.next({ atLeastMs: (retryAfter ?? 0) * 1000 }), signal).catch(() => undefined);
            }
        }
    }

    /**
     * @param {OutboxItem} item
     * @param {Partial<OutboxItem>} what
     */
    #change(item, what) {
        const now = this.#items.get(item.clientId);
        if (!now) return;
        const next = { ...now, ...what };
        this.#items.set(item.clientId, next);
        this.onChange(item.conversationId);
        void this.#keep(next).finally(() => this.tell('changed'));
    }

    /** @param {OutboxItem} item */
    #strike(item) {
        this.#items.delete(item.clientId);
        this.#gone.add(item.clientId);
        if (this.#gone.size > 1000) this.#gone.delete(/** @type {string} */ (this.#gone.values().next().value));
        this.onChange(item.conversationId);
        void this.#serial(() => this.store.delete(this.prefix + item.clientId)).finally(() => this.tell('changed'));
    }

    /** @param {OutboxItem} item */
    #keep(item) {
        return this.#serial(async () => {
            if (!this.#gone.has(item.clientId)) await this.store.set(this.prefix + item.clientId, item);
        });
    }

    /** Resolves when all that was to be written down is. */
    async settle() {
        if (this.prefix === '') return;
        for (let seen; seen !== this.#chain; await seen) seen = this.#chain;
    }

    /** Called by `begin`: before it is known whose messages they are, nothing can be written down. */
    #begun = () => undefined;
    /** @type {Promise<unknown>} */
    #chain = new Promise((resolve) => (this.#begun = () => void resolve(undefined)));

    /**
     * Writes go one after the other: an older state must not overtake a newer one.
     * @param {() => Promise<void>} work
     */
    #serial(work) {
        const done = this.#chain.then(work).catch(() => undefined);
        this.#chain = done;
        return done;
    }
}
