// What one conversation looks like from some seq to another: a window without doubles, in order, that knows its own holes. Pure: no clock,
// no requests. A seq in the window is held, or known to hold nothing (a void, or not for these eyes), or in a gap that is to be filled.
//
// A window that is `atEnd` grows with what arrives. One that is not (someone jumped far back) never does: gluing message 201 onto a window
// that ends at 60 would hide 140 messages for good.

/** @typedef {import('./shapes.js').Message} Message */
/** @typedef {import('./shapes.js').MessagePage} MessagePage */
/** @typedef {{ from: number, to: number, loading: boolean }} Gap both included */

/**
 * In events reactions do not say whether one is among them; what was known stays.
 * @param {import('./shapes.js').Reaction[]} reactions
 * @param {import('./shapes.js').Reaction[]} [before]
 */
export function withMine(reactions, before = []) {
    return reactions.map((one) => ({ ...one, me: one.me ?? before.find((old) => old.emoji === one.emoji)?.me ?? false }));
}

export class Timeline {
    /** @type {Map<number, Message>} */
    #held = new Map();
    /** @type {Message[] | null} */
    #sorted = [];
    /** In order, apart from each other, within the window. @type {Gap[]} */
    gaps = [];
    from = 1;
    to = 0;
    head = 0;
    loaded = false;
    hasOlder = false;
    atEnd = false;

    get hasNewer() {
        return this.loaded && !this.atEnd;
    }

    /** @param {number} seq */
    get(seq) {
        return this.#held.get(seq);
    }

    /** In ascending seq. */
    get messages() {
        this.#sorted ??= [...this.#held.values()].sort((a, b) => a.seq - b.seq);
        return this.#sorted;
    }

    /**
     * Begins anew with a page.
     * @param {MessagePage} page
     */
    reset(page) {
        this.#held.clear();
        this.#sorted = null;
        this.gaps = [];
        this.loaded = true;
        const first = page.items[0]?.seq ?? page.head_seq + 1;
        const last = page.items.at(-1)?.seq ?? page.head_seq;
        this.hasOlder = page.has_more_before;
        this.from = page.has_more_before ? first : 1;
        this.to = page.has_more_after ? last : page.head_seq;
        this.atEnd = !page.has_more_after;
        this.head = page.head_seq;
        for (const message of page.items) this.#put(message);
    }

    /**
     * @param {MessagePage} page what was asked with `before` = the window's begin
     * @param {number} before
     */
    addOlder(page, before) {
        if (!this.loaded || before !== this.from) return;
        const first = page.items[0]?.seq ?? this.from;
        this.hasOlder = page.has_more_before;
        this.from = page.has_more_before ? first : 1;
        for (const message of page.items) this.#put(message);
    }

    /**
     * @param {MessagePage} page what was asked with `after` = the window's end
     * @param {number} after
     */
    addNewer(page, after) {
        if (!this.loaded || this.atEnd || after !== this.to) return;
        this.head = Math.max(this.head, page.head_seq);
        const last = page.items.at(-1)?.seq ?? this.to;
        this.to = page.has_more_after ? last : Math.max(this.to, page.head_seq);
        for (const message of page.items) this.#put(message);
        if (!page.has_more_after) this.#joinEnd();
    }

    /** The window has reached the end; what came meanwhile makes it a gap. */
    #joinEnd() {
        this.atEnd = true;
        this.reach(this.head);
    }

    /**
     * @param {MessagePage} page what was asked with this `after`; it answers for every seq from there to its last, or to the head
     * @param {number} after
     */
    fill(page, after) {
        if (!this.loaded) return;
        const last = page.has_more_after ? (page.items.at(-1)?.seq ?? after) : page.head_seq;
        for (const message of page.items) if (message.seq >= this.from && message.seq <= this.to) this.#put(message);
        this.#cover(after + 1, last);
    }

    /**
     * The conversation goes to this seq at least: a window at the end goes there too, with a gap for what is missing.
     * @param {number} head
     */
    reach(head) {
        this.head = Math.max(this.head, head);
        if (!this.loaded || !this.atEnd || head <= this.to) return;
        this.gaps.push({ from: this.to + 1, to: head, loading: false });
        this.to = head;
        this.#mergeGaps();
    }

    /**
     * A message as it is now. Older than what is held, or outside of the window: nothing.
     * @param {Message} message
     * @returns {boolean} whether anything changed
     */
    apply(message) {
        if (!this.loaded) return false;
        const { seq } = message;
        if (this.atEnd && seq > this.to) this.reach(seq);
        this.head = Math.max(this.head, seq);
        if (seq < this.from || seq > this.to) return false;
        this.#cover(seq, seq);
        return this.#put(message);
    }

    /**
     * A message got another seq; what stands at the old one comes by itself, or is asked for.
     * @param {number} oldSeq
     * @param {Message} message
     */
    resequence(oldSeq, message) {
        if (this.#held.get(oldSeq)?.id === message.id) {
            this.#held.delete(oldSeq);
            this.#sorted = null;
            this.gaps.push({ from: oldSeq, to: oldSeq, loading: false });
            this.#mergeGaps();
        }
        this.apply(message);
    }

    /**
     * @param {number} seq
     * @param {number} rev
     * @param {import('./shapes.js').Reaction[]} reactions
     */
    react(seq, rev, reactions) {
        const held = this.#held.get(seq);
        if (!held || held.rev > rev) return false;
        this.#held.set(seq, { ...held, rev, reactions: withMine(reactions, held.reactions) });
        this.#sorted = null;
        return true;
    }

    /**
     * Seqs that will never hold a message.
     * @param {import('./shapes.js').SeqRange[]} voids
     */
    skip(voids) {
        for (const [from, to] of voids) this.#cover(from, to);
    }

    /**
     * Nothing up to this seq is there any more.
     * @param {number} seq
     */
    clearTo(seq) {
        if (!this.loaded || seq < this.from) return;
        for (const key of [...this.#held.keys()]) if (key <= seq) this.#held.delete(key);
        this.#cover(this.from, seq);
        this.#sorted = null;
        this.hasOlder = false;
        this.to = Math.max(this.to, seq);
        this.from = seq + 1;
    }

    /** Everything in it is asked for again: it lies too far back for what changed to be told. */
    forget() {
        this.#held.clear();
        this.#sorted = [];
        this.gaps = [];
        this.loaded = false;
    }

    /** @param {Message} message */
    #put(message) {
        const held = this.#held.get(message.seq);
        if (held && held.rev > message.rev) return false;
        if (held && held.rev === message.rev && held.id === message.id) {
            // The same, perhaps with what an event leaves out.
            if (!message.reactions.some((one, at) => one.me !== undefined && one.me !== held.reactions[at]?.me)) return false;
        }
        this.#held.set(message.seq, { ...message, reactions: withMine(message.reactions, held?.reactions) });
        this.#sorted = null;
        return true;
    }

    /**
     * @param {number} from
     * @param {number} to
     */
    #cover(from, to) {
        if (to < from || this.gaps.length === 0) return;
        this.gaps = this.gaps.flatMap((gap) => {
            if (to < gap.from || from > gap.to) return [gap];
            const rest = [];
            if (gap.from < from) rest.push({ ...gap, to: from - 1 });
            if (gap.to > to) rest.push({ ...gap, from: to + 1 });
            return rest;
        });
    }

    #mergeGaps() {
        /** @type {Gap[]} */
        const merged = [];
        for (const gap of [...this.gaps].sort((a, b) => a.from - b.from)) {
            const last = merged.at(-1);
            if (last && gap.from <= last.to + 1) {
                last.to = Math.max(last.to, gap.to);
                last.loading &&= gap.loading;
            } else merged.push({ ...gap });
        }
        this.gaps = merged;
    }
}
