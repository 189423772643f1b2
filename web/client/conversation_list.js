// The conversations of a user, newest activity first, pinned ones on top. Events move it at once; what they cannot tell is asked for.
import { insist } from './gap_filler.js';
import { unlessAborted } from './signals.js';

/** @typedef {import('./shapes.js').ConversationInfo} ConversationInfo */
/** @typedef {ConversationInfo & { typing: string[] }} ListItem */

/** Conversations a page. */
const PAGE = 50;

export class ConversationList {
    /** All that is known, on the list or not. @type {Map<string, ConversationInfo>} */
    #known = new Map();
    /** On the list. @type {Set<string>} */
    #listed = new Set();
    /** @type {string | null} */
    #cursor = null;
    #complete = false;
    /** @type {ListItem[] | null} */
    #sorted = null;
    /** @type {Map<string, { asked: number, answer: Promise<ConversationInfo> }>} */
    #asking = new Map();
    /** The lowest place that was reached by paging; what is older belongs to pages not read yet. */
    #floor = '';
    /** Moments, counted: what was asked before one and is answered after it says nothing about what happened then. */
    #now = 0;
    /** Those that one no longer belongs to, and since when. @type {Map<string, number>} */
    #left = new Map();
    /** Of those the stream has passed over something, and when: what it tells since is not all. @type {Map<string, number>} */
    #behind = new Map();
    /** When each came onto the list or was changed last. @type {Map<string, number>} */
    #touched = new Map();
    /** Pages that were read. */
    #pages = 1;
    loaded = false;

    /**
     * @param {object} options
     * @param {import('./contract.js').Api} options.api
     * @param {AbortSignal} options.signal
     * @param {() => string | null} options.me
     * @param {(id: string) => string[]} options.typing
     * @param {(id: string | null, before: ConversationInfo | null, after: ConversationInfo | null) => void} options.onChange
     */
    constructor({ api, signal, me, typing, onChange }) {
        this.api = api;
        this.signal = signal;
        this.me = me;
        this.typing = typing;
        this.onChange = onChange;
    }

    /** As it is to be shown. @returns {ListItem[]} */
    get items() {
        if (this.#sorted) return this.#sorted;
        const shown = [...this.#listed].map((id) => this.#known.get(id)).filter((one) => one !== undefined && !one.me?.hidden);
        const items = /** @type {ConversationInfo[]} */ (shown).map((one) => ({ ...one, typing: this.typing(one.id) }));
        items.sort((a, b) => Number(b.me?.pinned ?? false) - Number(a.me?.pinned ?? false) || (a.updated_at < b.updated_at ? 1 : a.updated_at > b.updated_at ? -1 : a.id < b.id ? 1 : -1));
        return (this.#sorted = items);
    }

    /** Whether there are pages not read yet. */
    get hasMore() {
        return !this.#complete;
    }

    /** @param {string} id */
    known(id) {
        return this.#known.get(id);
    }

    /** The order or somebody's typing changed. */
    touch() {
        this.#sorted = null;
    }

    /** The stream has passed over something. What is known is replaced by what the server says from now on, however new it looks. */
    fallBehind() {
        this.#now += 1;
        for (const id of this.#known.keys()) this.#behind.set(id, this.#now);
    }

    /**
     * Reads again as many pages as were read.
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {Promise<string>} the place in the log before which everything is in the list
     */
    async refresh({ signal } = {}) {
        const asked = this.#now;
        const first = await this.#page(null, signal);
        const items = [...first.items];
        let cursor = first.next_cursor ?? null;
        for (let page = 1; page < this.#pages && cursor !== null; page += 1) {
            const next = await this.#page(cursor, signal);
            items.push(...next.items);
            cursor = next.next_cursor ?? null;
        }
        const read = new Set(items.map((one) => one.id));
        // One that was moved from page to page meanwhile is on none of those that were read, but something was heard of it, or will be.
        for (const id of [...this.#listed]) if (!read.has(id) && (this.#touched.get(id) ?? 0) <= asked) this.#listed.delete(id);
        for (const one of items) this.put(one, { asked });
        this.#reached(cursor, items.at(-1));
        this.loaded = true;
        this.onChange(null, null, null);
        return first.events_head;
    }

    /**
     * Reads the next page.
     * @param {{ signal?: AbortSignal }} [options]
     */
    async more({ signal } = {}) {
        if (this.#complete || !this.loaded) return;
        const [cursor, asked] = [this.#cursor, this.#now];
        const page = await this.#page(cursor, signal);
        if (cursor !== this.#cursor) return;
        for (const one of page.items) this.put(one, { asked });
        this.#pages += 1;
        this.#reached(page.next_cursor ?? null, page.items.at(-1));
        this.onChange(null, null, null);
    }

    /**
     * @param {string | null} cursor
     * @param {AbortSignal} [signal]
     */
    #page(cursor, signal) {
        return this.api.getConversations({ query: { limit: PAGE, ...(cursor === null ? {} : { cursor }) }, signal: signal ?? this.signal });
    }

    /**
     * @param {string | null} cursor of the next page
     * @param {ConversationInfo | undefined} last that was read
     */
    #reached(cursor, last) {
        this.#cursor = cursor;
        this.#complete = cursor === null;
        this.#floor = last?.updated_at ?? this.#floor;
        this.#sorted = null;
    }

    /**
     * One conversation as it is now, on the list or not. Asked for once, however many ask.
     * @param {string} id
     * @param {{ signal?: AbortSignal }} [options]
     * @returns {Promise<ConversationInfo>}
     */
    async get(id, { signal } = {}) {
        signal?.throwIfAborted();
        const marks = Math.max(this.#left.get(id) ?? 0, this.#behind.get(id) ?? 0);
        let asking = this.#asking.get(id);
        if (!asking || asking.asked < marks) {
            const answer = this.api.getConversation({ path: { id }, signal: this.signal }).finally(() => this.#asking.get(id) === asking && this.#asking.delete(id));
            asking = { asked: this.#now, answer };
            this.#asking.set(id, asking);
        }
        const { asked, answer } = asking;
        const one = await unlessAborted(answer, signal);
        this.put(one, { asked, listed: this.#belongs(one) });
        return this.#known.get(id) ?? one;
    }

    /**
     * Those whose title, other member or members' names hold a text.
     * @param {string} text
     * @param {{ signal?: AbortSignal, cursor?: string }} [options]
     */
    async search(text, { signal, cursor } = {}) {
        const asked = this.#now;
        const page = await this.api.getConversations({ query: { limit: PAGE, q: text, ...(cursor ? { cursor } : {}) }, signal: signal ?? this.signal });
        for (const one of page.items) this.put(one, { asked, listed: this.#belongs(one) });
        return { items: page.items.map((one) => this.#known.get(one.id) ?? one), next_cursor: page.next_cursor ?? null };
    }

    /** @param {ConversationInfo} one */
    #belongs(one) {
        return this.loaded && (this.#complete || one.updated_at >= this.#floor);
    }

    /**
     * @param {ConversationInfo} one as the server has it
     * @param {{ listed?: boolean, asked?: number }} [how] `asked`: the moment in which the server was asked for it
     */
    put(one, { listed = true, asked = 0 } = {}) {
        if ((this.#left.get(one.id) ?? 0) > asked) return;
        this.#left.delete(one.id);
        const before = this.#known.get(one.id) ?? null;
        const [behind, touched] = [this.#behind.get(one.id) ?? 0, this.#touched.get(one.id) ?? 0];
        if (listed) this.#list(one.id);
        this.#sorted = null;
        if (before && before.rev > one.rev && (behind === 0 || behind > asked || touched > asked)) {
            // Newer by what the stream told, but not whole.
            if (behind > 0) this.fetch(one.id);
            return;
        }
        if (behind <= asked) this.#behind.delete(one.id);
        this.#known.set(one.id, one);
        this.onChange(one.id, before, one);
    }

    /** @param {string} id */
    #list(id) {
        if (this.#listed.has(id)) return;
        this.#now += 1;
        this.#touched.set(id, this.#now);
        this.#listed.add(id);
        this.#sorted = null;
    }

    /**
     * @param {string} id
     * @param {(one: ConversationInfo) => ConversationInfo} change
     */
    change(id, change) {
        const before = this.#known.get(id);
        if (!before) return;
        const after = change(before);
        this.#now += 1;
        this.#touched.set(id, this.#now);
        this.#known.set(id, after);
        this.#sorted = null;
        this.onChange(id, before, after);
    }

    /** @param {string} id one does not belong to it any more */
    drop(id) {
        const before = this.#known.get(id) ?? null;
        this.#now += 1;
        this.#left.set(id, this.#now);
        this.#known.delete(id);
        this.#listed.delete(id);
        this.#sorted = null;
        this.onChange(id, before, null);
    }

    /**
     * Asks for one until it is there; for what an event cannot tell.
     * @param {string} id
     */
    fetch(id) {
        if (this.#left.has(id)) return;
        insist(() => this.get(id), this.signal).catch((error) => {
            // One that cannot be seen any more: its last event may have been lost with the log.
            if (error?.status === 404 && this.#known.has(id)) this.drop(id);
        });
    }

    /** @param {import('./shapes.js').ChatEvent} event */
    apply(event) {
        const { conversation_id: id, rev } = event;
        const me = this.me();
        if (event.type === 'conversation.created') {
            this.#left.delete(id);
            this.put(event.data.conversation);
            return;
        }
        if ((event.type === 'member.removed' || event.type === 'member.left') && event.data.user_id === me) return this.drop(id);
        if (event.type === 'member.joined' && event.data.user_id === me) this.#left.delete(id);
        if (event.type === 'typing.updated') return this.touch();
        const one = this.#known.get(id);
        if (!one) return this.fetch(id);
        if (rev < one.rev || (rev === one.rev && event.type === 'message.created')) return;
        // It comes from a page that was not read again since.
        if (this.#behind.has(id) && !this.#listed.has(id)) this.fetch(id);
        this.#list(id);
        switch (event.type) {
            case 'message.created':
                return this.change(id, (was) => withMessage({ ...was, rev }, event.data.message, me));
            case 'message.edited':
            case 'message.deleted': {
                const { message } = event.data;
                if (event.type === 'message.deleted' && message.seq > (one.me?.read_seq ?? 0) && message.sender !== me) this.fetch(id);
                return this.change(id, (was) => ({ ...was, rev, last_message: was.last_message?.seq === message.seq ? message : was.last_message }));
            }
            case 'conversation.renamed':
                return this.change(id, (was) => ({ ...was, rev, title: event.data.title, display_name: event.data.title }));
            case 'owner.changed':
                return this.change(id, (was) => ({ ...was, rev, owner: event.data.owner, me: was.me ? { ...was.me, role: event.data.owner === me ? 'owner' : 'member' } : null }));
            case 'read.advanced': {
                if (event.data.user_id !== me) return this.change(id, (was) => ({ ...was, rev }));
                const { read_seq, read_at } = event.data;
                this.read(id, { read_seq, read_at, unread: -1, unread_more: false }, rev);
                return;
            }
            case 'preferences.changed': {
                const { blocked, ...rest } = event.data;
                if (rest.cleared_to > (one.me?.cleared_to ?? 0)) this.fetch(id);
                return this.change(id, (was) => ({ ...was, rev, me: was.me ? { ...was.me, ...rest, ...(blocked === undefined ? {} : { blocked }) } : null }));
            }
            case 'member.joined':
            case 'member.left':
            case 'member.removed':
            case 'conversation.imported':
            case 'conversation.dissolved':
            case 'message.resequenced':
                return this.fetch(id);
            default:
                return this.change(id, (was) => ({ ...was, rev }));
        }
    }

    /**
     * One has read up to somewhere.
     * @param {string} id
     * @param {import('./shapes.js').ReadPosition} position `unread` -1: not told
     * @param {number} [rev]
     */
    read(id, { read_seq, read_at, unread, unread_more }, rev = 0) {
        let ask = false;
        this.change(id, (was) => {
            if (!was.me || read_seq < was.me.read_seq) return was;
            if (read_seq === was.me.read_seq && unread < 0) return { ...was, rev: Math.max(was.rev, rev) };
            const left = unread >= 0 ? unread : read_seq >= was.head_seq ? 0 : was.me.unread;
            ask = unread < 0 && read_seq < was.head_seq && was.me.unread > 0;
            const mentions = left === 0 ? 0 : was.me.unread_mentions;
            return { ...was, rev: Math.max(was.rev, rev), me: { ...was.me, read_seq, read_at: read_at ?? null, unread: left, unread_more: left > 0 && unread_more, unread_mentions: mentions, marked_unread: false } };
        });
        if (ask) this.fetch(id);
    }
}

/**
 * @param {ConversationInfo} was
 * @param {import('./shapes.js').Message} message
 * @param {string | null} me
 * @returns {ConversationInfo}
 */
export function withMessage(was, message, me) {
    if (message.seq <= was.head_seq) return was;
    const next = { ...was, head_seq: message.seq, last_message: message, updated_at: message.created_at > was.updated_at ? message.created_at : was.updated_at };
    if (!was.me) return next;
    const mine = message.sender === me && message.kind !== 'system';
    const counts = !mine && message.sender !== me && message.kind !== 'system' && !message.deleted_at;
    next.me = { ...was.me, hidden: false };
    if (mine) next.me = { ...next.me, read_seq: message.seq, unread: 0, unread_more: false, unread_mentions: 0, marked_unread: false };
    else if (counts && message.seq > was.me.read_seq && !was.me.unread_more) {
        const named = me !== null && message.mentions.includes(me) ? 1 : 0;
        next.me = { ...next.me, unread: was.me.unread + 1, unread_mentions: was.me.unread_mentions + named };
    }
    return next;
}
