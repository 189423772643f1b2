// Signals put together and let go of again. AbortSignal.any is younger than the browsers people have, and what it makes hangs on to the
// signals it was made of for as long as those live: for one that ends with the page, that is every request ever made.

/**
 * A signal that aborts with the first of these. `free` lets go of them; whoever made it calls that when the work is over.
 * @param {(AbortSignal | undefined | null)[]} signals
 * @returns {{ signal: AbortSignal, free: () => void }}
 */
export function joined(...signals) {
    const all = new AbortController();
    const given = signals.filter((one) => one !== undefined && one !== null);
    const stop = () => all.abort(given.find((one) => one.aborted)?.reason);
    for (const one of given) one.addEventListener('abort', stop, { once: true });
    if (given.some((one) => one.aborted)) stop();
    return {
        signal: all.signal,
        free: () => {
            for (const one of given) one.removeEventListener('abort', stop);
        },
    };
}

/**
 * What a promise gives, or the signal's reason when that aborts first: for work that does not listen to signals itself.
 * @template T
 * @param {Promise<T>} work
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<T>}
 */
export function unlessAborted(work, signal) {
    if (!signal) return work;
    return new Promise((resolve, reject) => {
        const stop = () => reject(signal.reason);
        if (signal.aborted) stop();
        signal.addEventListener('abort', stop, { once: true });
        work.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
    });
}
