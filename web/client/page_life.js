// What a browser tells about a page's life: seen or not, put aside and brought back, on or off the network. Nothing of it in Node.

/** Milliseconds out of sight after which a page cannot trust that it missed nothing. */
const AWAY_MS = 5_000;

/**
 * @param {object} options
 * @param {Document | undefined} options.document
 * @param {EventTarget | undefined} options.window
 * @param {AbortSignal} options.signal
 * @param {() => void} options.onBack the network or the page is back: connect afresh
 * @param {() => void} options.onAside the page is put aside; it must hold nothing that others wait for
 * @param {() => void} options.onReturn it is taken up again
 */
export function watchPage({ document, window, signal, onBack, onAside, onReturn }) {
    const options = { signal };
    let hiddenAt = document?.visibilityState === 'hidden' ? performance.now() : null;
    window?.addEventListener('online', onBack, options);
    window?.addEventListener('pagehide', (event) => {
        if (/** @type {PageTransitionEvent} */ (event).persisted) onAside();
    }, options);
    window?.addEventListener('pageshow', (event) => {
        if (!(/** @type {PageTransitionEvent} */ (event).persisted)) return;
        onReturn();
        onBack();
    }, options);
    document?.addEventListener('resume', onBack, options);
    document?.addEventListener('visibilitychange', () => {
        if (document.visibilityState === 'hidden') {
            hiddenAt = performance.now();
            return;
        }
        const away = hiddenAt === null ? 0 : performance.now() - hiddenAt;
        hiddenAt = null;
        if (away >= AWAY_MS) onBack();
    }, options);
}
