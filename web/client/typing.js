// Who is writing. Sent at most every 3 s; what is received is believed for 6 s, or until a message of that user comes.

/** Milliseconds. */
export const SEND_EVERY_MS = 3_000;
/** Milliseconds. */
export const BELIEVE_MS = 6_000;

export class Typing {
    /** @type {Map<string, Map<string, ReturnType<typeof setTimeout>>>} */
    #writing = new Map();
    /** When the last word was sent, by conversation. @type {Map<string, number>} */
    #sentAt = new Map();

    /**
     * @param {{ send: (conversationId: string, typing: boolean) => Promise<void>, onChange: (conversationId: string) => void }} options
     */
    constructor({ send, onChange }) {
        this.send = send;
        this.onChange = onChange;
    }

    /** @param {string} conversationId */
    users(conversationId) {
        return [...(this.#writing.get(conversationId)?.keys() ?? [])];
    }

    /**
     * Oneself is writing, or has stopped. What is lost is not repeated: the next key does that.
     * @param {string} conversationId
     * @param {boolean} typing
     */
    tell(conversationId, typing) {
        const now = performance.now();
        const last = this.#sentAt.get(conversationId);
        if (typing ? last !== undefined && now - last < SEND_EVERY_MS : last === undefined) return;
        if (typing) this.#sentAt.set(conversationId, now);
        else this.#sentAt.delete(conversationId);
        this.send(conversationId, typing).catch(() => undefined);
    }

    /**
     * One's own message ends it without a word; the next key tells it anew.
     * @param {string} conversationId
     */
    sent(conversationId) {
        this.#sentAt.delete(conversationId);
    }

    /**
     * @param {string} conversationId
     * @param {string} user
     * @param {boolean} typing
     */
    heard(conversationId, user, typing) {
        let users = this.#writing.get(conversationId);
        const timer = users?.get(user);
        if (timer !== undefined) clearTimeout(timer);
        if (!typing) {
            if (users?.delete(user)) this.onChange(conversationId);
            return;
        }
        if (!users) this.#writing.set(conversationId, (users = new Map()));
        users.set(user, setTimeout(() => this.heard(conversationId, user, false), BELIEVE_MS));
        if (timer === undefined) this.onChange(conversationId);
    }

    close() {
        for (const users of this.#writing.values()) for (const timer of users.values()) clearTimeout(timer);
        this.#writing.clear();
    }
}
