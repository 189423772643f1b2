// Fetches what a timeline lacks: by range, until nothing is missing, with its own retries.
import { Backoff, sleep } from './backoff.js';
import { asSeqlineError } from './errors.js';

/** Milliseconds that a hole may last before it is asked for: what is on its way in the stream mostly comes by itself. */
const PATIENCE_MS = 300;
/** Messages at a time. */
const PAGE = 200;

/**
 * Work that is tried until it is done or refused for good.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} work
 * @param {AbortSignal} signal
 * @param {{ refused?: (error: unknown) => void }} [how] `refused`: for what a gateway refuses nobody. Whoever refused it is told of here, and asked again
 * @returns {Promise<T>}
 */
export async function insist(work, signal, { refused } = {}) {
    const backoff = new Backoff({ capMs: 15_000 });
    for (;;) {
        try {
            return await work(signal);
        } catch (thrown) {
            const error = asSeqlineError(thrown);
            if (signal.aborted) throw thrown;
            if (!error.temporary && error.status !== 401) {
                if (!refused) throw thrown;
                refused(error);
            }
            await sleep(backoff.next({ atLeastMs: (error.retryAfter ?? 0) * 1000 }), signal);
        }
    }
}

export class GapFiller {
    #busy = false;

    /**
     * @param {import('./timeline.js').Timeline} timeline
     * @param {{ read: (query: { after: number, limit: number }, signal: AbortSignal) => Promise<import('./shapes.js').MessagePage>, onChange: () => void, signal: AbortSignal }} options
     */
    constructor(timeline, { read, onChange, signal }) {
        this.timeline = timeline;
        this.read = read;
        this.onChange = onChange;
        this.signal = signal;
    }

    /** Looks after the gaps that there are. */
    look() {
        if (this.#busy || this.timeline.gaps.length === 0 || this.signal.aborted) return;
        this.#busy = true;
        const refused = () => {
            for (const gap of this.timeline.gaps) gap.loading = false;
            this.onChange();
        };
        void this.#fill().catch(refused).finally(() => {
            this.#busy = false;
        });
    }

    async #fill() {
        await sleep(PATIENCE_MS, this.signal);
        for (;;) {
            const gap = this.timeline.gaps[0];
            if (!gap) return;
            gap.loading = true;
            this.onChange();
            const after = gap.from - 1;
            const page = await insist((signal) => this.read({ after, limit: Math.min(PAGE, Math.max(1, gap.to - gap.from + 1)) }, signal), this.signal);
            this.timeline.fill(page, after);
            this.timeline.skip(page.voids);
            const next = this.timeline.gaps[0];
            // What the server does not count up to cannot be filled yet; an event or a recovery brings it.
            if (next?.from === gap.from) {
                next.loading = false;
                this.onChange();
                return;
            }
            this.onChange();
        }
    }
}
