// Where things outlive a page: IndexedDB in a browser, memory elsewhere. Keys are texts, values plain objects.

/**
 * @typedef {object} Store
 * @property {boolean} shared whether other tabs see the same
 * @property {(key: string) => Promise<any>} get undefined when it is not there
 * @property {(key: string, value: any) => Promise<void>} set resolves when it will survive
 * @property {(key: string) => Promise<void>} delete
 * @property {(prefix: string) => Promise<[string, any][]>} entries those whose key begins so, in the order of their keys
 * @property {() => void} [close]
 */

/**
 * Lives as long as the process.
 * @returns {Store}
 */
export function memoryStore() {
    /** @type {Map<string, string>} */
    const kept = new Map();
    return {
        shared: false,
        get: async (key) => (kept.has(key) ? JSON.parse(/** @type {string} */ (kept.get(key))) : undefined),
        set: async (key, value) => void kept.set(key, JSON.stringify(value)),
        delete: async (key) => void kept.delete(key),
        entries: async (prefix) => {
            const found = [...kept].filter(([key]) => key.startsWith(prefix)).sort(([a], [b]) => (a < b ? -1 : 1));
            return found.map(([key, text]) => [key, JSON.parse(text)]);
        },
    };
}

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function answered(request) {
    return new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });
}

/**
 * @param {string} [name] of the database
 * @returns {Store}
 */
export function indexedDbStore(name = 'seqline') {
    /** @type {Promise<IDBDatabase> | null} */
    let opening = null;
    let closed = false;
    const open = () => {
        if (closed) return Promise.reject(new Error('the store is closed'));
        opening ??= new Promise((resolve, reject) => {
            const request = indexedDB.open(name, 1);
            request.onupgradeneeded = () => request.result.createObjectStore('kept');
            request.onblocked = () => reject(new Error('the database is held by an older page'));
            request.onerror = () => reject(request.error);
            request.onsuccess = () => {
                // A newer page may want another version; a browser may close it by itself. The next who needs it opens it anew.
                request.result.onversionchange = () => {
                    request.result.close();
                    opening = null;
                };
                request.result.onclose = () => (opening = null);
                resolve(request.result);
            };
        });
        opening.catch(() => (opening = null));
        return opening;
    };
    /** @param {IDBTransactionMode} mode */
    const begin = async (mode) => {
        try {
            return (await open()).transaction('kept', mode, { durability: 'strict' });
        } catch {
            // Closed meanwhile, as some browsers do without a word.
            opening = null;
            return (await open()).transaction('kept', mode, { durability: 'strict' });
        }
    };
    /**
     * @param {IDBTransactionMode} mode
     * @param {(kept: IDBObjectStore) => IDBRequest<any>} work
     */
    const within = async (mode, work) => {
        const transaction = await begin(mode);
        const done = new Promise((resolve, reject) => {
            transaction.oncomplete = () => resolve(undefined);
            transaction.onabort = transaction.onerror = () => reject(transaction.error);
        });
        const [result] = await Promise.all([answered(work(transaction.objectStore('kept'))), done]);
        return result;
    };
    return {
        shared: true,
        get: (key) => within('readonly', (kept) => kept.get(key)),
        set: async (key, value) => void (await within('readwrite', (kept) => kept.put(value, key))),
        delete: async (key) => void (await within('readwrite', (kept) => kept.delete(key))),
        entries: async (prefix) => {
            const range = IDBKeyRange.bound(prefix, `${prefix}\uFFFF`);
            const transaction = await begin('readonly');
            const kept = transaction.objectStore('kept');
            const [keys, values] = await Promise.all([answered(kept.getAllKeys(range)), answered(kept.getAll(range))]);
            return keys.map((key, at) => [String(key), values[at]]);
        },
        close: () => {
            closed = true;
            void opening?.then((database) => database.close(), () => undefined);
        },
    };
}

/** Longest wait for a store, in milliseconds: some browsers never answer. */
const ANSWER_MS = 5_000;
/** Milliseconds for which one that did not answer is left alone. */
const REST_MS = 60_000;

/**
 * A store that goes on in memory with what another does not take or give (private windows, a full disk, a database that never answers),
 * and goes back to it when it does again.
 * @param {Store} first
 * @param {{ onFailure?: () => void, withinMs?: number }} [options]
 * @returns {Store}
 */
export function withFallback(first, { onFailure, withinMs = ANSWER_MS } = {}) {
    /** What the first has not taken yet, or would not: newer than what it holds. No text: struck out. @type {Map<string, { text: string | null }>} */
    const ahead = new Map();
    let failing = false;
    let restUntil = 0;
    /**
     * @template T
     * @param {() => Promise<T>} work
     * @returns {Promise<{ done: T } | null>} null: it failed
     */
    const attempt = async (work) => {
        if (performance.now() < restUntil) return null;
        /** @type {ReturnType<typeof setTimeout> | undefined} */
        let timer;
        const late = new Promise((_, reject) => {
            timer = setTimeout(() => {
                restUntil = performance.now() + REST_MS;
                reject(new Error('the store does not answer'));
            }, withinMs);
        });
        try {
            const done = await /** @type {Promise<T>} */ (Promise.race([work(), late]));
            failing = false;
            return { done };
        } catch {
            const begins = !failing;
            failing = true;
            if (begins) onFailure?.();
            return null;
        } finally {
            clearTimeout(timer);
        }
    };
    /**
     * @param {string} key
     * @param {string | null} text
     * @param {() => Promise<void>} work
     */
    const write = async (key, text, work) => {
        const own = { text };
        ahead.set(key, own);
        if ((await attempt(work)) && ahead.get(key) === own) ahead.delete(key);
    };
    return {
        get shared() {
            return first.shared && !failing;
        },
        get: async (key) => {
            const own = ahead.get(key);
            if (!own) return (await attempt(() => first.get(key)))?.done;
            return own.text === null ? undefined : JSON.parse(own.text);
        },
        set: (key, value) => write(key, JSON.stringify(value), () => first.set(key, value)),
        delete: (key) => write(key, null, () => first.delete(key)),
        entries: async (prefix) => {
            const found = new Map((await attempt(() => first.entries(prefix)))?.done ?? []);
            for (const [key, { text }] of ahead) {
                if (text === null) found.delete(key);
                else if (key.startsWith(prefix)) found.set(key, JSON.parse(text));
            }
            return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
        },
        close: () => first.close?.(),
    };
}

/**
 * What serves best here.
 * @param {{ onFailure?: () => void }} [options]
 */
export function defaultStore(options) {
    return typeof indexedDB === 'undefined' ? memoryStore() : withFallback(indexedDbStore(), options);
}
