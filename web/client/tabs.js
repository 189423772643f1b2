// One tab has the stream and tells the others. A lock says which; when its tab is closed the browser gives it to the next. Where there
// are no locks (Node, old browsers) everybody leads and nobody follows.

/** @typedef {{ request: (name: string, options: any, work: (lock: any) => Promise<any>) => Promise<any> }} Locks */

export class Tabs {
    /** @type {BroadcastChannel | null} */
    #channel = null;
    /** @type {(() => void) | null} */
    #release = null;
    /** @type {AbortController | null} */
    #waiting = null;
    #closed = false;
    leads = false;

    /**
     * @param {string} name the same in all tabs of one user
     * @param {{ locks?: Locks | null, Channel?: typeof BroadcastChannel | null, onMessage: (message: any) => void, onLead: (signal: AbortSignal) => Promise<void> | void, onFollow: () => void }} options
     */
    constructor(name, { locks, Channel, onMessage, onLead, onFollow }) {
        this.name = name;
        this.locks = locks ?? null;
        this.onLead = onLead;
        this.onFollow = onFollow;
        if (this.locks && Channel) {
            this.#channel = new Channel(name);
            this.#channel.onmessage = (event) => void (this.#closed || onMessage(event.data));
        }
    }

    /** Whether there can be others. */
    get shared() {
        return this.#channel !== null;
    }

    /** @param {any} message what structured clones can hold */
    post(message) {
        if (!this.#closed) this.#channel?.postMessage(message);
    }

    /**
     * Leads as soon as nobody else does.
     * @param {{ steal?: boolean }} [how] `steal`: at once, from one that has fallen silent
     */
    queue({ steal = false } = {}) {
        if (this.#closed || this.leads) return;
        if (!this.locks || !this.#channel) {
            void this.#lead();
            return;
        }
        this.#waiting?.abort();
        const waiting = (this.#waiting = new AbortController());
        const options = steal ? { steal: true } : { signal: waiting.signal };
        this.locks.request(this.name, options, () => this.#lead()).catch((error) => {
            // Stolen, or no longer waited for.
            if (waiting.signal.aborted || this.#closed) return;
            this.stepDown();
            if (error?.name === 'AbortError') return this.queue();
            // A page that may have no locks, such as one in a sandbox, is on its own: asking again would be asking for ever, and the others have a leader.
            this.locks = null;
            this.#channel?.close();
            this.#channel = null;
            this.queue();
        });
    }

    async #lead() {
        if (this.#closed) return;
        this.#waiting = null;
        this.leads = true;
        const ending = new AbortController();
        const held = new Promise((resolve) => (this.#release = () => resolve(undefined)));
        const leading = Promise.resolve(this.onLead(ending.signal)).catch(() => undefined);
        await held;
        ending.abort();
        await leading;
    }

    /** Gives the lead away, for instance because the page is put aside. */
    stepDown() {
        this.#waiting?.abort();
        this.#waiting = null;
        if (!this.leads) return;
        this.leads = false;
        this.#release?.();
        this.#release = null;
        if (!this.#closed) this.onFollow();
    }

    close() {
        this.#closed = true;
        this.stepDown();
        this.#channel?.close();
        this.#channel = null;
    }
}

/**
 * Runs work that only one tab may do at a time; without locks, or where they may not be used, it simply runs.
 * @param {Locks | null | undefined} locks
 * @param {string} name
 * @param {AbortSignal} signal
 * @param {() => Promise<void>} work
 */
export async function alone(locks, name, signal, work) {
    if (!locks) return work();
    let begun = false;
    try {
        await locks.request(name, { signal }, () => {
            begun = true;
            return work();
        });
    } catch (error) {
        if (begun || signal.aborted) throw error;
        await work();
    }
}
