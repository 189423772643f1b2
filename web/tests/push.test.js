// Web Push from `chat.push` to what the service worker is handed: a browser's push parts that are made up, real gateways, a push service on loopback.
import assert from 'node:assert/strict';
import { createDecipheriv, createECDH, hkdfSync, randomBytes } from 'node:crypto';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { connect, memoryStore } from '../seqline.js';
import { name, until, World } from './harness.js';

/** @type {World} */
let world;
/** The push service: what was delivered to it, by path. */
let service;
before(async () => {
    const delivered = [];
    const server = http.createServer(async (request, response) => {
        const chunks = [];
        for await (const chunk of request) chunks.push(chunk);
        delivered.push({ path: request.url, headers: request.headers, body: Buffer.concat(chunks) });
        response.writeHead(201).end();
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    service = { delivered, server, url: `http://127.0.0.1:${server.address().port}` };
    world = await World.start({ env: { SEQLINE_PUSH_ALLOW_LOOPBACK: 'true', SEQLINE_PUSH_DELAY_MS: '100', SEQLINE_PUSH_INTERVAL_MS: '100' } });
});
after(async () => {
    await world?.stop();
    service.server.close();
});

/** What a browser has for pushes, put where the module looks for it until the end of the test. */
function browserOf(t) {
    const browser = { asked: 0, answers: [], subscription: null, keys: new Map() };
    const subscribe = async ({ applicationServerKey }) => {
        const [ecdh, auth, endpoint] = [createECDH('prime256v1'), randomBytes(16), `${service.url}/${name('browser')}`];
        const p256dh = ecdh.generateKeys();
        browser.keys.set(new URL(endpoint).pathname, { ecdh, auth });
        browser.subscription = {
            endpoint, options: { applicationServerKey: Uint8Array.from(applicationServerKey).buffer },
            toJSON: () => ({ endpoint, keys: { p256dh: p256dh.toString('base64url'), auth: auth.toString('base64url') } }),
            unsubscribe: async () => ((browser.subscription = null), true),
        };
        return browser.subscription;
    };
    const registration = { pushManager: { subscribe, getSubscription: async () => browser.subscription } };
    const serviceWorker = { register: async () => registration, ready: Promise.resolve(registration), getRegistration: async () => registration };
    const Notification = { permission: 'default', requestPermission: async () => ((browser.asked += 1), (Notification.permission = browser.answers.shift() ?? 'granted')) };
    const globals = { navigator: { serviceWorker }, PushManager: class {}, Notification };
    for (const [word, value] of Object.entries(globals)) {
        const was = Object.getOwnPropertyDescriptor(globalThis, word);
        Object.defineProperty(globalThis, word, { value, configurable: true, writable: true });
        t.after(() => (was ? Object.defineProperty(globalThis, word, was) : delete globalThis[word]));
    }
    /** What the browser would hand to the service worker. */
    browser.opened = ({ path, body }) => {
        const { ecdh, auth } = browser.keys.get(path);
        const [salt, from] = [body.subarray(0, 16), body.subarray(21, 21 + body[20])];
        const secret = hkdfSync('sha256', ecdh.computeSecret(from), auth, Buffer.concat([Buffer.from('WebPush: info\0'), ecdh.getPublicKey(), from]), 32);
        const part = (word, length) => Buffer.from(hkdfSync('sha256', Buffer.from(secret), salt, `Content-Encoding: ${word}\0`, length));
        const sealed = body.subarray(21 + body[20]);
        const cipher = createDecipheriv('aes-128-gcm', part('aes128gcm', 16), part('nonce', 12)).setAuthTag(sealed.subarray(-16));
        const text = Buffer.concat([cipher.update(sealed.subarray(0, -16)), cipher.final()]).toString();
        return JSON.parse(text.slice(0, text.lastIndexOf('}') + 1));
    };
    return browser;
}

async function join(t, user, more = {}) {
    const chat = connect({ baseUrl: world.urls[0], getToken: () => world.token(user), heartbeatMs: 1000, ...more });
    t.after(() => chat.close());
    await until(() => chat.state.phase === 'live', 'live');
    return chat;
}
/** Ann writes; resolves with what the push service was handed. */
async function written(ann, id, body) {
    const before = service.delivered.length;
    ann.conversation(id).send({ body });
    await until(() => service.delivered.length > before, 'a push', 15_000);
    return service.delivered.at(-1);
}

test('pushes that were wished for arrive, are signed with the key of the gateway, and can be read by the browser', async (t) => {
    const browser = browserOf(t);
    const [a, b] = [name('ann'), name('bob')];
    const storage = memoryStore();
    const [ann, bob] = [await join(t, a), await join(t, b, { storage })];
    assert.equal(bob.push.state, 'off');
    // The question was closed: that is no answer.
    browser.answers.push('default');
    assert.equal(await bob.push.enable({ preview: true }), 'off');
    assert.equal(await bob.push.enable({ preview: true }), 'on');
    const { id } = await ann.createConversation({ kind: 'group', members: [b] });
    const push = await written(ann, id, 'Lunch at one?');
    const { key } = await bob.api.getPushKey({});
    assert.match(push.headers.authorization, new RegExp(`^vapid t=.*k=${key}`));
    const payload = browser.opened(push);
    assert.deepEqual([payload.conversation_id, payload.message.preview], [id, 'Lunch at one?']);

    // The gateway has forgotten it; the next page of this user says it again, asking nobody.
    await bob.api.deletePushSubscription({ body: { endpoint: browser.subscription.endpoint } });
    await bob.close();
    const later = await join(t, b, { storage });
    await until(() => later.push.state === 'on', 'on by itself');
    assert.equal(later.push.preview, true);
    assert.equal(browser.opened(await written(ann, id, 'Or two?')).message.preview, 'Or two?');
    assert.equal(browser.asked, 2);

    // The gateway has another key now: what was signed with the old one would be refused, so the browser gets a new subscription.
    const old = browser.subscription.endpoint;
    browser.subscription.options.applicationServerKey = new ArrayBuffer(65);
    await later.push.restore();
    assert.notEqual(browser.subscription.endpoint, old);
    const { path } = await written(ann, id, 'Three?');
    assert.equal(path, new URL(browser.subscription.endpoint).pathname);
});

test('the wish is of the user, not of the browser', async (t) => {
    const browser = browserOf(t);
    const storage = memoryStore();
    const bob = await join(t, name('bob'), { storage });
    await bob.push.enable();
    await bob.close();
    const put = [];
    const fetch = (url, init) => ((init.method === 'PUT' && put.push(url)), globalThis.fetch(url, init));
    const eve = await join(t, name('eve'), { storage, surroundings: { fetch } });
    assert.equal(await eve.push.restore(), 'off');
    assert.deepEqual(put, [], 'nobody else is made to get pushes');
    assert.equal(browser.asked, 1);
});

test('pushes that are not wished for any more end here, also when the gateway cannot be told now', async (t) => {
    const browser = browserOf(t);
    const storage = memoryStore();
    let away = false;
    const fetch = (url, init) => (away && init.method === 'DELETE' ? Promise.reject(new TypeError('no network')) : globalThis.fetch(url, init));
    const bob = await join(t, name('bob'), { storage, surroundings: { fetch } });
    await bob.push.enable();
    away = true;
    assert.equal(await bob.push.disable(), 'off');
    assert.equal(browser.subscription, null);
    assert.equal(await bob.push.restore(), 'off');
});
