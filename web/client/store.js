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
    const open = () => {
        opening ??= new Promise((resolve, reject) => {
            const request = indexedDB.open(name, 1);
            request.onupgradeneeded = () => request.result.createObjectStore('kept');
            request.onblocked = () => reject(new Error('the database is held by an older page'));
            request.onerror = () => reject(request.error);
            request.onsuccess = () => {
                // A newer page may want another version; a browser may close it by itself.
                request.result.onversionchange = () => request.result.close();
                request.result.onclose = () => (opening = null);
                resolve(request.result);
            };
        });
        opening.catch(() => (opening = null));
        return opening;
    };
    /**
     * @param {IDBTransactionMode} mode
     * @param {(kept: IDBObjectStore) => IDBRequest<any>} work
     */
    const within = async (mode, work) => {
        const transaction = (await open()).transaction('kept', mode, { durability: 'strict' });
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
            const transaction = (await open()).transaction('kept', 'readonly');
            const kept = transaction.objectStore('kept');
            const [keys, values] = await Promise.all([answered(kept.getAllKeys(range)), answered(kept.getAll(range))]);
            return keys.map((key, at) => [String(key), values[at]]);
        },
        close: () => void opening?.then((database) => database.close(), () => undefined),
    };
}

/**
 * A store that goes on in memory when the browser keeps nothing (private windows, a full disk).
 * @param {Store} first
 * @returns {Store}
 */
export function withFallback(first) {
    const second = memoryStore();
    let broken = false;
    /**
     * @template T
     * @param {(store: Store) => Promise<T>} work
     */
    const either = async (work) => {
        if (broken) return work(second);
        try {
            return await work(first);
        } catch {
            broken = true;
            return work(second);
        }
    };
    return {
        get shared() {
            return !broken && first.shared;
        },
        get: (key) => either((store) => store.get(key)),
        set: (key, value) => either((store) => store.set(key, value)),
        delete: (key) => either((store) => store.delete(key)),
        entries: (prefix) => either((store) => store.entries(prefix)),
        close: () => first.close?.(),
    };
}

/** What serves best here. */
export function defaultStore() {
    return typeof indexedDB === 'undefined' ? memoryStore() : withFallback(indexedDbStore());
}
