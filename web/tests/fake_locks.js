// Web Locks within one process: tabs, as far as a test in Node can have them.

/** Web Locks as browsers have them, as far as they are used here. */
export function fakeLocks() {
    const lines = new Map();
    const next = (name) => {
        const line = lines.get(name);
        const first = line?.waiting.shift();
        line.held = first ?? null;
        first?.begin();
    };
    return {
        request(name, { signal, steal }, work) {
            if (!lines.has(name)) lines.set(name, { held: null, waiting: [] });
            const line = lines.get(name);
            return new Promise((resolve, reject) => {
                const one = { reject, begin: () => void Promise.resolve(work({})).then(resolve, reject).finally(() => line.held === one && next(name)) };
                signal?.addEventListener('abort', () => {
                    if (!line.waiting.includes(one)) return;
                    line.waiting = line.waiting.filter((other) => other !== one);
                    reject(signal.reason);
                });
                if (steal && line.held) {
                    line.held.reject(new DOMException('stolen', 'AbortError'));
                    line.held = null;
                }
                if (line.held) return line.waiting.push(one);
                line.held = one;
                return one.begin();
            });
        },
    };
}
