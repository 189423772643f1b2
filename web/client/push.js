// Web Push for this browser: asks for leave, subscribes with the gateway's key, tells the gateway, and does it again when the key changed.

/** @typedef {'unsupported' | 'denied' | 'off' | 'on'} PushState */

/** @param {string} text base64url */
function bytesOf(text) {
    return Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0));
}

export class Push {
    /** @type {PushState} */
    state = 'off';

    /** Whether pushes say who wrote what. */
    preview = false;

    /**
     * @param {object} options
     * @param {import('./contract.js').Api} options.api
     * @param {import('./store.js').Store} options.store
     * @param {() => string | null} options.me
     * @param {string} [options.worker] path of the service worker
     */
    constructor({ api, store, me, worker = '/sw.js' }) {
        this.api = api;
        this.store = store;
        this.me = me;
        this.worker = worker;
        if (!this.supported) this.state = 'unsupported';
        else if (Notification.permission === 'denied') this.state = 'denied';
    }

    /** Whose wish it is: the next who signs in here has not wished for it, nor for showing on a locked screen who wrote what. */
    get #key() {
        return `push:${this.me() ?? ''}`;
    }

    get supported() {
        return typeof navigator !== 'undefined' && 'serviceWorker' in navigator && typeof PushManager !== 'undefined' && typeof Notification !== 'undefined';
    }

    async #registration() {
        await navigator.serviceWorker.register(this.worker, { type: 'module' });
        return navigator.serviceWorker.ready;
    }

    /**
     * To be called from a click: the browser asks the user for leave.
     * @param {{ preview?: boolean }} [options] whether pushes say who wrote what
     * @returns {Promise<PushState>}
     */
    async enable({ preview = false } = {}) {
        if (!this.supported) return (this.state = 'unsupported');
        const leave = await Notification.requestPermission();
        // Who closed the question has not said no, and may be asked again.
        if (leave !== 'granted') return (this.state = leave === 'denied' ? 'denied' : 'off');
        await this.#subscribe(preview);
        await this.store.set(this.#key, { preview });
        this.preview = preview;
        return (this.state = 'on');
    }

    /** @param {boolean} preview */
    async #subscribe(preview) {
        const registration = await this.#registration();
        const key = bytesOf((await this.api.getPushKey({})).key);
        let subscription = await registration.pushManager.getSubscription();
        const made = subscription?.options.applicationServerKey;
        const same = made && key.length === made.byteLength && new Uint8Array(made).every((byte, at) => byte === key[at]);
        if (subscription && !same) {
            // The gateway has another key now; pushes to the old subscription can no longer be signed.
            await this.api.deletePushSubscription({ body: { endpoint: subscription.endpoint } }).catch(() => undefined);
            await subscription.unsubscribe();
            subscription = null;
        }
        subscription ??= await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
        const { endpoint, keys } = subscription.toJSON();
        if (!endpoint || !keys?.p256dh || !keys.auth) throw new Error('the browser gave no keys');
        await this.api.putPushSubscription({ body: { endpoint, keys: { p256dh: keys.p256dh, auth: keys.auth }, show_preview: preview } });
    }

    /** Tells the gateway again when pushes are wanted: the browser or the gateway may have changed what they have. */
    async restore() {
        if (!this.supported || Notification.permission !== 'granted') return this.state;
        const wanted = await this.store.get(this.#key);
        if (!wanted) return this.state;
        this.preview = Boolean(wanted.preview);
        await this.#subscribe(this.preview);
        return (this.state = 'on');
    }

    async disable() {
        if (!this.supported) return this.state;
        await this.store.delete(this.#key);
        const registration = await navigator.serviceWorker.getRegistration();
        const subscription = await registration?.pushManager.getSubscription();
        if (subscription) {
            const { endpoint } = subscription;
            // Gone here even when the gateway cannot be told now: what it still pushes comes back to it as 410, which ends it there.
            await Promise.all([this.api.deletePushSubscription({ body: { endpoint } }).catch(() => undefined), subscription.unsubscribe()]);
        }
        return (this.state = Notification.permission === 'denied' ? 'denied' : 'off');
    }
}
