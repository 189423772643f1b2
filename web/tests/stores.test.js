// What is kept and what waits to be sent, when stores throw, are silent, are full or are closed under one's feet.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect } from '../seqline.js';
import { Outbox } from '../client/outbox.js';
import { indexedDbStore, memoryStore, withFallback } from '../client/store.js';
import { fakeLocks } from './fake_locks.js';
import { signToken, until } from './harness.js';

const tick = (ms = 5) => new Promise((resolve) => setTimeout(resolve, ms));
const never = () => new Promise(() => undefined);

function outbox(store, send, more = {}) {
    const box = new Outbox({ store, send, random: () => 0.01, onSent: () => undefined, onChange: () => undefined, ...more });
    box.begin('o:');
    return box;
}

test('a message is confirmed by a message alone', async () => {
    const [answers, stop] = [[undefined, {}, { ok: true }, { client_id: 'other', seq: 3, conversation_id: 'c' }], new AbortController()];
    const keys = [];
    const box = outbox(memoryStore(), async (_, body) => (keys.push(body.client_id), answers.length > 0 ? answers.shift() : { client_id: body.client_id }));
    void box.run(stop.signal);
    box.add('c', { body: 'x' });
    await until(() => keys.length === 5 && box.items().length === 0, 'sent until it was there');
    assert.equal(new Set(keys).size, 1);
    stop.abort();
});

test('a clock that was set back does not turn the line around', async () => {
    const [store, sent, stop] = [memoryStore(), [], new AbortController()];
    const now = Date.now();
    const real = Date.now;
    Date.now = () => now + 3_600_000;
    const first = outbox(store, never);
    first.add('c', { body: '1' });
    Date.now = real;
    await until(async () => (await store.entries('o:')).length === 1, 'kept');
    const second = outbox(store, async (_, body) => (sent.push(body.body), { client_id: body.client_id }));
    await second.load();
    second.add('c', { body: '2' });
    await until(async () => (await store.entries('o:')).length === 2, 'kept');
    void second.run(stop.signal);
    await until(() => sent.length === 2, 'sent');
    assert.deepEqual(sent, ['1', '2']);
    stop.abort();
});

test('what is written while the store is read is not taken for struck out', async () => {
    const store = Object.assign(memoryStore(), { shared: true });
    let release;
    const { entries } = store;
    store.entries = async (prefix) => {
        const found = await entries(prefix);
        await new Promise((resolve) => (release = resolve));
        return found;
    };
    const box = outbox(store, never);
    const loading = box.load();
    await until(() => release, 'being read');
    box.add('c', { body: 'new' });
    await until(async () => (await entries('o:')).length === 1, 'kept');
    await tick();
    release();
    await loading;
    assert.equal(box.items().length, 1);
});

test('a store that throws, is silent or is full costs nothing that was written', async () => {
    let failures = 0;
    const onFailure = () => (failures += 1);
    const bad = { shared: true, get: async () => Promise.reject(new Error('no')), set: async () => Promise.reject(new Error('full')), delete: async () => Promise.reject(new Error('no')), entries: async () => Promise.reject(new Error('no')) };
    const store = withFallback(bad, { onFailure });
    await store.set('a1', 1);
    await store.set('a2', 2);
    await store.delete('a1');
    assert.deepEqual([await store.get('a2'), await store.get('a1'), await store.entries('a'), store.shared, failures], [2, undefined, [['a2', 2]], false, 1]);
    let asked = 0;
    const silent = withFallback({ shared: true, get: never, set: () => (asked++, never()), delete: never, entries: never }, { withinMs: 20 });
    await silent.set('k', 'v');
    assert.deepEqual(await silent.entries('k'), [['k', 'v']]);
    assert.equal(await silent.get('k'), 'v');
    await silent.set('k', 'w');
    assert.equal(asked, 1, 'left alone for a while');
    // One slip is not for ever: what was written before is seen, and what is written after is kept.
    const inner = memoryStore();
    await inner.set('b1', 'before');
    let slips = 1;
    const { set } = inner;
    inner.set = async (key, value) => (slips-- > 0 ? Promise.reject(new Error('closing')) : set(key, value));
    const slipping = withFallback(inner);
    await slipping.set('b2', 'while');
    await slipping.set('b3', 'after');
    assert.deepEqual((await slipping.entries('b')).map(([key]) => key), ['b1', 'b2', 'b3']);
    assert.equal(await inner.get('b3'), 'after');
    inner.shared = true;
    assert.ok(slipping.shared, 'trusted again');
});

test('a write that failed late does not undo the one after it', async () => {
    const inner = memoryStore();
    const { set } = inner;
    let fail;
    inner.set = () => new Promise((_, reject) => (fail = () => reject(new Error('at last'))));
    const store = withFallback(inner);
    const first = store.set('k', 'old');
    inner.set = set;
    await store.set('k', 'new');
    fail();
    await first;
    assert.equal(await store.get('k'), 'new');
});

test('a write that was taken late does not undo the one after it, which was not taken', async () => {
    const inner = memoryStore();
    const { set } = inner;
    let take;
    inner.set = async (key, value) => (await new Promise((resolve) => (take = resolve)), set(key, value));
    const store = withFallback(inner);
    const first = store.set('k', 'old');
    inner.set = async () => Promise.reject(new Error('full'));
    await store.set('k', 'new');
    take();
    await first;
    assert.equal(await store.get('k'), 'new');
});

test('what is still on its way into the store is read as it will be', async () => {
    const inner = memoryStore();
    await inner.set('k', 'old');
    inner.set = inner.delete = never;
    const store = withFallback(inner);
    void store.set('k', 'new');
    assert.deepEqual([await store.get('k'), await store.entries('k')], ['new', [['k', 'new']]]);
    void store.delete('k');
    assert.deepEqual([await store.get('k'), await store.entries('k')], [undefined, []]);
});

/** An IndexedDB of one store that can be closed from outside: as far as the module uses it. */
function fakeIndexedDb() {
    const [kept, open] = [new Map(), new Set()];
    const later = (request, result) => (setTimeout(() => request.onsuccess?.(), 1), Object.assign(request, { result }));
    const database = () => {
        const one = {
            close: () => open.delete(one),
            transaction: () => {
                if (!open.has(one)) throw new DOMException('closed', 'InvalidStateError');
                const transaction = {
                    objectStore: () => ({
                        get: (key) => later({}, kept.get(key)),
                        put: (value, key) => later({}, void kept.set(key, value)),
                        getAllKeys: () => later({}, [...kept.keys()]),
                        getAll: () => later({}, [...kept.values()]),
                    }),
                };
                setTimeout(() => transaction.oncomplete?.(), 2);
                return transaction;
            },
        };
        open.add(one);
        return one;
    };
    return { open, indexedDB: { open: () => later({}, database()) }, IDBKeyRange: { bound: () => null } };
}

test('a database that the browser closes is opened again; one that was closed here is not', async (t) => {
    const { open, ...globals } = fakeIndexedDb();
    Object.assign(globalThis, globals);
    t.after(() => Object.keys(globals).forEach((name) => delete globalThis[name]));
    const store = indexedDbStore();
    await store.set('a', 1);
    // A newer page wants another version.
    for (const database of open) database.onversionchange();
    assert.equal(open.size, 0, 'let go of');
    assert.equal(await store.get('a'), 1);
    // Closed without a word.
    open.clear();
    assert.equal(await store.get('a'), 1);
    open.clear();
    assert.deepEqual(await store.entries('a'), [['a', 1]]);
    store.close();
    await tick();
    await assert.rejects(store.get('a'), /closed/);
    assert.equal(open.size, 0);
});

/** A gateway that has nothing but a stream, and takes what is sent. */
function gatewayOf(sent) {
    return async (url, { method, body, signal }) => {
        if (url.includes('/v1/unread')) return new Response('{"total":0,"conversations":0}');
        if (url.includes('/v1/conversations?')) return new Response('{"items":[],"events_head":"p1"}');
        if (method === 'POST' && url.endsWith('/messages')) {
            const { client_id } = JSON.parse(body);
            sent.push(client_id);
            return new Response(JSON.stringify({ client_id, seq: sent.length, conversation_id: 'c', rev: 1, sender: 'ann', reactions: [], mentions: [] }));
        }
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    };
}
const getToken = () => signToken('s'.repeat(32), { sub: 'ann' });

test('a tab whose store takes nothing any more sends what it has by itself: the tab that sends for all cannot see it', async (t) => {
    const sent = [];
    const locks = fakeLocks();
    const kept = Object.assign(memoryStore(), { shared: true });
    const more = { baseUrl: 'http://x', getToken, device: 'd', surroundings: { locks, Channel: BroadcastChannel, fetch: gatewayOf(sent) } };
    const first = connect({ ...more, storage: kept });
    const own = { ...kept };
    const second = connect({ ...more, storage: own });
    t.after(() => Promise.all([first.close(), second.close()]));
    await until(() => first.me && second.me && first.state.leader, 'signed in');
    own.set = own.delete = own.entries = async () => Promise.reject(new Error('full'));
    const key = second.conversation('c').send({ body: 'x' });
    await until(() => sent.includes(key) && second.outbox.length === 0, 'sent', 3_000);
    assert.deepEqual([...new Set(sent)], [key]);
});

test('where a page may use no locks, what is written is sent', async (t) => {
    const sent = [];
    const locks = { request: async () => Promise.reject(new DOMException('no locks here', 'SecurityError')) };
    const storage = Object.assign(memoryStore(), { shared: true });
    const chat = connect({ baseUrl: 'http://x', getToken, device: 'd', storage, surroundings: { locks, Channel: BroadcastChannel, fetch: gatewayOf(sent) } });
    t.after(() => chat.close());
    const key = chat.conversation('c').send({ body: 'x' });
    await until(() => sent.includes(key), 'sent', 3_000);
});

test('closed, all that was written is in the store', async () => {
    const storage = memoryStore();
    const { set } = storage;
    storage.set = async (key, value) => (await tick(30), set(key, value));
    const getToken = () => signToken('s'.repeat(32), { sub: 'ann' });
    const hang = (_, { signal }) => new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    const chat = connect({ baseUrl: 'http://x', getToken, storage, device: 'd', surroundings: { fetch: hang } });
    await until(() => chat.me === 'ann', 'signed in');
    await tick();
    chat.conversation('c').send({ body: 'kept' });
    await chat.close();
    assert.equal((await storage.entries('outbox:')).length, 1);
});
