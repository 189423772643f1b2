// How much is unread, muted conversations left out. What events tell counts at once; the server's own count follows and wins.
import { sleep } from './backoff.js';
import { insist } from './gap_filler.js';

/** Milliseconds after a change before the server is asked, so that a burst is one question. */
const ASK_AFTER_MS = 1_000;

/** @typedef {{ unread: number, conversations: number }} Badge */

/** @param {import('./shapes.js').ConversationInfo | null} one */
function share(one) {
    const me = one?.me;
    if (!me || me.muted || me.hidden) return { unread: 0, conversations: 0 };
    return { unread: me.unread, conversations: me.unread > 0 || me.marked_unread ? 1 : 0 };
}

export class BadgeCount {
    /** @type {Badge} */
    value = { unread: 0, conversations: 0 };
    #asking = false;
    #again = false;
    #known = false;

    /**
     * @param {{ api: import('./contract.js').Api, signal: AbortSignal, onChange: () => void }} options
     */
    constructor({ api, signal, onChange }) {
        this.api = api;
        this.signal = signal;
        this.onChange = onChange;
    }

    /**
     * @param {import('./shapes.js').ConversationInfo | null} before
     * @param {import('./shapes.js').ConversationInfo | null} after
     */
    changed(before, after) {
        if (before === null && after !== null && !this.#known) return;
        const [was, is] = [share(before), share(after)];
        if (was.unread === is.unread && was.conversations === is.conversations) return;
        if (before !== null) this.#set(this.value.unread + is.unread - was.unread, this.value.conversations + is.conversations - was.conversations);
        this.ask();
    }

    /**
     * @param {number} unread
     * @param {number} conversations
     */
    #set(unread, conversations) {
        this.value = { unread: Math.max(0, unread), conversations: Math.max(0, conversations) };
        this.onChange();
    }

    /** Asks the server soon. */
    ask(afterMs = ASK_AFTER_MS) {
        if (this.#asking) {
            this.#again = true;
            return;
        }
        this.#asking = true;
        void (async () => {
            try {
                do {
                    await sleep(afterMs, this.signal);
                    this.#again = false;
                    const totals = await insist((signal) => this.api.getUnread({ signal }), this.signal);
                    this.#known = true;
                    if (!this.#again) this.#set(totals.total, totals.conversations);
                } while (this.#again);
            } catch {
                // The next change or recovery asks again.
            } finally {
                this.#asking = false;
            }
        })();
    }
}
