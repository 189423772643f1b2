// One conversation as a page uses it: its facts, its window of messages, and what one can do in it.
import { asSeqlineError, SeqlineError } from './errors.js';
import { GapFiller, insist } from './gap_filler.js';
import { draftOf } from './outbox.js';
import { Timeline } from './timeline.js';

/** @typedef {import('./shapes.js').Message} Message */
/** @typedef {import('./shapes.js').MessagePage} MessagePage */
/** @typedef {{ signal?: AbortSignal }} Waiting */
/** @typedef {{ kind: 'message', seq: number, message: Message }} MessageEntry */
/** @typedef {{ kind: 'pending', clientId: string, draft: import('./outbox.js').Draft, state: 'waiting' | 'sending' | 'failed', error: { status: number, code: string, message: string } | null, at: string }} PendingEntry */
/** @typedef {{ kind: 'gap', from: number, to: number, loading: boolean }} GapEntry */
/** @typedef {MessageEntry | PendingEntry | GapEntry} Entry */
/** @typedef {{ body?: string, kind?: import('./shapes.js').MessageKind, media?: string[], replyTo?: number, share?: import('./shapes.js').ShareReference, mentions?: string[], peer?: string }} Words */

/** Messages a page. */
const PAGE = 50;
/** Messages a page when catching up. */
const CHANGES = 200;
/** Pages of changes after which reading the window anew is cheaper. */
const CHANGES_PAGES_MAX = 10;

export class Conversation {
    #timeline = new Timeline();
    #filler;
    /** What arrives while a first page is under way; applied after it. @type {import('./shapes.js').ChatEvent[] | null} */
    #early = null;
    /** The rev up to which the window is whole. */
    #rev = 0;
    /** Grows when the window begins anew: an answer to an older question is dropped. */
    #generation = 0;
    /** @type {Map<string, Promise<void>>} */
    #loading = new Map();
    /** @type {Promise<void> | null} */
    #catching = null;
    #again = false;
    /** @type {Map<string, number>} */
    #positions = new Map();
    /** What the reader has in view, or asked for; null at the end, where what is new is wanted. @type {number | null} */
    #place = null;
    /** How often the stream has passed over something, and how much of that is caught up with. */
    #passed = 0;
    #caught = 0;

    /**
     * @param {string} id
     * @param {import('./connection.js').Parts} parts
     */
    constructor(id, parts) {
        this.id = id;
        this.parts = parts;
        const read = (/** @type {{ after: number, limit: number }} */ query, /** @type {AbortSignal} */ signal) => this.#page(query, signal);
        this.#filler = new GapFiller(this.#timeline, { read, onChange: () => this.#changed(), signal: parts.signal });
    }

    /** Its facts; undefined before they are read. */
    get info() {
        return this.parts.list.known(this.id);
    }

    get typingUsers() {
        return this.parts.typing.users(this.id);
    }

    /** How far others have read, as far as was heard since the page was opened. @returns {ReadonlyMap<string, number>} */
    get readPositions() {
        return this.#positions;
    }

    /** What to show, from old to new. @returns {{ entries: Entry[], loaded: boolean, hasOlder: boolean, hasNewer: boolean, detached: boolean, headSeq: number }} */
    get timeline() {
        const line = this.#timeline;
        /** @type {Entry[]} */
        const entries = [];
        let at = 0;
        const sent = new Set();
        for (const message of line.messages) {
            for (let gap = line.gaps[at]; gap && gap.from < message.seq; gap = line.gaps[++at]) entries.push({ kind: 'gap', ...gap });
            entries.push({ kind: 'message', seq: message.seq, message });
            if (message.client_id && message.sender === this.parts.me()) sent.add(message.client_id);
        }
        for (const gap of line.gaps.slice(at)) entries.push({ kind: 'gap', ...gap });
        if (line.atEnd || !line.loaded) {
            for (const { clientId, draft, state, error, at: written } of this.parts.outbox.items(this.id)) {
                if (!sent.has(clientId)) entries.push({ kind: 'pending', clientId, draft, state, error, at: written });
            }
        }
        return { entries, loaded: line.loaded, hasOlder: line.hasOlder, hasNewer: line.hasNewer, detached: line.hasNewer, headSeq: Math.max(line.head, this.info?.head_seq ?? 0) };
    }

    /**
     * Loads the newest messages, or those around a seq. Open already: nothing, unless it is elsewhere.
     * @param {{ around?: number } & Waiting} [options]
     */
    async open({ around, signal } = {}) {
        const line = this.#timeline;
        if (line.loaded && (around === undefined ? line.atEnd : around >= line.from && around <= line.to)) return;
        await this.#begin(around, signal);
    }

    /**
     * @param {number | undefined} around
     * @param {AbortSignal} [signal]
     */
    async #begin(around, signal) {
        const generation = ++this.#generation;
        const passed = this.#passed;
        this.#early ??= [];
        try {
            // The facts first: what happens after their rev is caught up with, or arrives as an event.
            const info = await this.parts.list.get(this.id, this.#waiting(signal)).catch((error) => this.#unmade(error));
            const page = info === null ? EMPTY : await this.#page(around === undefined ? { limit: PAGE } : { around, limit: PAGE }, signal ?? this.parts.signal);
            if (generation !== this.#generation) return;
            this.#timeline.reset(page);
            this.#place = around ?? null;
            this.#rev = info?.rev ?? 0;
            this.#caught = passed;
            if (info?.me) this.#timeline.clearTo(info.me.cleared_to);
            const early = this.#early ?? [];
            this.#early = null;
            for (const event of early) if (event.rev > this.#rev || event.type === 'message.created') this.#applyNow(event);
        } finally {
            if (generation === this.#generation) this.#early = null;
        }
        this.#confirm();
        this.#changed();
        if (this.#passed > passed) void this.catchUp(this.parts.signal);
    }

    /**
     * A single conversation that nobody has written in yet is not there, but can be written in.
     * @param {unknown} thrown
     * @returns {null}
     */
    #unmade(thrown) {
        if (this.id.startsWith('single:') && this.parts.peers.has(this.id) && asSeqlineError(thrown).code === 'not_found') return null;
        throw thrown;
    }

    /** @param {Waiting} [options] */
    older({ signal } = {}) {
        return this.#once('older', async () => {
            const { from, hasOlder, loaded } = this.#timeline;
            if (!loaded || !hasOlder) return;
            const generation = this.#generation;
            const page = await this.#page({ before: from, limit: PAGE }, signal);
            if (generation === this.#generation) this.#timeline.addOlder(page, from);
        });
    }

    /** @param {Waiting} [options] */
    newer({ signal } = {}) {
        return this.#once('newer', async () => {
            const { to, hasNewer } = this.#timeline;
            if (!hasNewer) return;
            const generation = this.#generation;
            const page = await this.#page({ after: to, limit: PAGE }, signal);
            if (generation === this.#generation) this.#timeline.addNewer(page, to);
        });
    }

    /**
     * Makes a seq part of the window.
     * @param {number} seq
     * @param {Waiting} [options]
     */
    async jumpTo(seq, { signal } = {}) {
        const { loaded, from, to } = this.#timeline;
        if (loaded && seq >= from && seq <= to) return;
        await this.#begin(seq, signal);
    }

    /** @param {Waiting} [options] */
    async jumpToEnd({ signal } = {}) {
        if (!this.#timeline.loaded || !this.#timeline.atEnd) await this.#begin(undefined, signal);
    }

    /**
     * @param {Words} words
     * @returns {string} the key of what was written
     */
    send(words) {
        this.parts.typing.sent(this.id);
        const clientId = this.parts.outbox.add(this.id, draftOf({ ...words, peer: words.peer ?? this.parts.peers.get(this.id) }));
        if (this.#timeline.hasNewer) this.jumpToEnd().catch((/** @type {unknown} */ error) => this.parts.onError(error));
        return clientId;
    }

    /** @param {string} clientId */
    retry(clientId) {
        this.parts.outbox.retry(clientId);
    }

    /** @param {string} clientId */
    discard(clientId) {
        this.parts.outbox.discard(clientId);
    }

    /**
     * @param {number} seq
     * @param {{ body?: string, media?: string[] }} words
     * @param {Waiting} [options]
     */
    async edit(seq, words, options) {
        return this.#take(await this.parts.api.patchMessage({ path: { id: this.id, seq }, body: words, ...this.#waiting(options?.signal) }));
    }

    /**
     * Takes a message back.
     * @param {number} seq
     * @param {Waiting} [options]
     */
    async recall(seq, options) {
        return this.#take(await this.parts.api.deleteMessage({ path: { id: this.id, seq }, ...this.#waiting(options?.signal) }));
    }

    /**
     * @param {number} seq
     * @param {string} emoji
     * @param {boolean} on
     * @param {Waiting} [options]
     */
    async react(seq, emoji, on, options) {
        const args = { path: { id: this.id, seq, emoji }, ...this.#waiting(options?.signal) };
        const answer = await (on ? this.parts.api.putReaction(args) : this.parts.api.deleteReaction(args));
        if (this.#timeline.react(seq, answer.rev, answer.reactions)) this.#changed();
        return answer;
    }

    /**
     * A message is in view, the lowest one if there are several. It stays in the window even when so much has changed that the window is read
     * anew. On a hidden page nothing is marked as read by this; say it again when the page is seen.
     * @param {number} seq
     */
    seen(seq) {
        const line = this.#timeline;
        this.#place = line.atEnd && seq >= (line.messages.at(-1)?.seq ?? 0) ? null : seq;
        this.parts.reads.seen(this.id, seq);
    }

    /** @param {boolean} [typing] */
    typing(typing = true) {
        this.parts.typing.tell(this.id, typing);
    }

    /**
     * All members, page after page.
     * @param {Waiting} [options]
     */
    async members(options) {
        const members = [];
        let cursor;
        do {
            /** @type {import('./shapes.js').MemberPage} */
            const page = await this.parts.api.getMembers({ path: { id: this.id }, query: { limit: 200, ...(cursor ? { cursor } : {}) }, ...this.#waiting(options?.signal) });
            members.push(...page.items);
            cursor = page.next_cursor;
        } while (cursor);
        return members;
    }

    /**
     * @param {string[]} users
     * @param {Waiting} [options]
     */
    async invite(users, options) {
        const made = [];
        for (const user_id of users) made.push(await this.parts.api.putMember({ path: { id: this.id, user_id }, ...this.#waiting(options?.signal) }));
        return made;
    }

    /**
     * @param {string} user_id
     * @param {Waiting} [options]
     */
    remove(user_id, options) {
        return this.parts.api.deleteMember({ path: { id: this.id, user_id }, ...this.#waiting(options?.signal) });
    }

    /** @param {Waiting} [options] */
    async leave(options) {
        const me = this.parts.me();
        if (me === null) throw new SeqlineError(0, 'unauthenticated', 'not signed in yet');
        await this.remove(me, options);
        this.parts.list.drop(this.id);
    }

    /**
     * @param {string} title
     * @param {Waiting} [options]
     */
    async rename(title, options) {
        return this.#facts(await this.parts.api.patchConversation({ path: { id: this.id }, body: { title }, ...this.#waiting(options?.signal) }));
    }

    /**
     * @param {import('./shapes.js').PutPreferences} preferences
     * @param {Waiting} [options]
     */
    async setPreferences(preferences, options) {
        const info = this.#facts(await this.parts.api.putPreferences({ path: { id: this.id }, body: preferences, ...this.#waiting(options?.signal) }));
        if (info.me) this.#timeline.clearTo(info.me.cleared_to);
        this.#changed();
        return info;
    }

    /**
     * Who has read a message of one's own.
     * @param {number} seq
     * @param {Waiting} [options]
     */
    readers(seq, options) {
        return this.parts.api.getReaders({ path: { id: this.id, seq }, ...this.#waiting(options?.signal) });
    }

    /** @param {import('./shapes.js').ChatEvent} event */
    apply(event) {
        if (event.type === 'message.created') this.parts.typing.heard(this.id, event.data.message.sender, false);
        if (this.#early) {
            if (!event.type.startsWith('typing')) this.#early.push(event);
            // The window of before stays right until the new one is there.
        }
        this.#applyNow(event);
    }

    /** @param {import('./shapes.js').ChatEvent} event */
    #applyNow(event) {
        const line = this.#timeline;
        switch (event.type) {
            case 'message.created':
            case 'message.edited':
            case 'message.deleted':
                this.#take(event.data.message);
                break;
            case 'message.resequenced':
                line.resequence(event.data.old_seq, event.data.message);
                break;
            case 'reaction.changed':
                line.react(event.data.seq, event.rev, event.data.reactions);
                break;
            case 'preferences.changed':
                line.clearTo(event.data.cleared_to);
                break;
            case 'read.advanced':
                for (const { user_id, read_seq } of event.data.positions ?? [event.data]) {
                    this.#positions.set(user_id, Math.max(read_seq, this.#positions.get(user_id) ?? 0));
                }
                break;
            case 'conversation.imported':
                line.reach(event.data.head_seq);
                break;
            default:
                return;
        }
        if (event.id && !this.#catching && this.#caught === this.#passed) this.#rev = Math.max(this.#rev, event.rev);
        this.#changed();
    }

    /** The stream has passed over something: whatever comes after it, the window is whole only up to here until it is caught up. */
    fallBehind() {
        this.#passed += 1;
    }

    /**
     * After the stream could not tell everything: what changed since is asked for, until it is known.
     * @param {AbortSignal} signal
     * @returns {Promise<void>}
     */
    catchUp(signal) {
        if (this.#catching) {
            this.#again = true;
            return this.#catching;
        }
        this.#catching = insist(() => this.#changes(signal), signal)
            .catch((error) => {
                if (signal.aborted) return;
                // One that cannot be seen any more: the event that said so was passed over.
                if (error?.code === 'not_found') this.parts.list.drop(this.id);
                else this.parts.onError(error);
            })
            .finally(() => {
                this.#catching = null;
                if (this.#again && !signal.aborted) {
                    this.#again = false;
                    void this.catchUp(signal);
                }
            });
        return this.#catching;
    }

    /** @param {AbortSignal} signal */
    async #changes(signal) {
        const line = this.#timeline;
        const passed = this.#passed;
        if (!line.loaded) return;
        const info = await this.parts.list.get(this.id, { signal }).catch((error) => this.#unmade(error));
        if (info === null) return;
        if (info.rev === this.#rev && info.head_seq <= line.head) {
            this.#caught = passed;
            return;
        }
        const generation = this.#generation;
        let since = this.#rev;
        for (let pages = 0; ; pages += 1) {
            if (pages === CHANGES_PAGES_MAX) return this.#begin(this.#place ?? (line.atEnd ? undefined : line.from), signal);
            /** @type {import('./shapes.js').ChangesPage} */
            const page = await this.parts.api.getMessages({ path: { id: this.id }, query: { since_rev: since, limit: CHANGES }, signal });
            if (generation !== this.#generation) return;
            for (const message of page.items) this.#take(message);
            line.skip(page.voids);
            since = Math.max(since, page.next_rev);
            if (!page.has_more) {
                line.reach(page.head_seq);
                line.skip(page.voids);
                break;
            }
        }
        this.#rev = Math.max(this.#rev, since, info.rev);
        this.#caught = passed;
        if (info.me) line.clearTo(info.me.cleared_to);
        this.#changed();
    }

    /**
     * A message as it is now, from wherever.
     * @param {Message} message
     */
    #take(message) {
        this.#timeline.apply(message);
        if (message.sender === this.parts.me()) this.parts.outbox.confirm(message.client_id);
        this.#changed();
        return message;
    }

    /** Takes what the server just answered to a send. @param {Message} message */
    taken(message) {
        this.#take(message);
    }

    #confirm() {
        const me = this.parts.me();
        for (const message of this.#timeline.messages) if (message.sender === me) this.parts.outbox.confirm(message.client_id);
    }

    #changed() {
        this.#filler.look();
        this.parts.onTimeline(this.id);
    }

    /** @param {import('./shapes.js').ConversationInfo} info */
    #facts(info) {
        this.parts.list.put(info);
        return info;
    }

    /**
     * @param {{ before?: number, after?: number, around?: number, limit: number }} query
     * @param {AbortSignal} [signal]
     * @returns {Promise<MessagePage>}
     */
    async #page(query, signal) {
        return this.parts.api.getMessages({ path: { id: this.id }, query, ...this.#waiting(signal) });
    }

    /** @param {AbortSignal} [signal] */
    #waiting(signal) {
        return { signal: signal ?? this.parts.signal };
    }

    /**
     * One load of a sort at a time; who asks meanwhile waits for that one.
     * @param {string} sort
     * @param {() => Promise<void>} work
     */
    #once(sort, work) {
        let loading = this.#loading.get(sort);
        if (!loading) {
            loading = work().finally(() => {
                this.#loading.delete(sort);
                this.#changed();
            });
            this.#loading.set(sort, loading);
        }
        return loading;
    }
}

/** @type {MessagePage} */
const EMPTY = { items: [], has_more_before: false, has_more_after: false, head_seq: 0, voids: [] };
