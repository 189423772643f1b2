// The module with a bad network in between: cut, refused, answered by proxies, silent, byte by byte.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memoryStore } from '../seqline.js';
import { name, until } from './harness.js';
import { join, range, scene, seqs, stream, world } from './scene.js';

test('one byte at a time, nothing is broken', async () => {
    const { ann, id, there, proxy } = await scene();
    proxy.trickle = true;
    proxy.cutAll();
    const body = '北京😀'.repeat(60);
    await ann.api.send({ path: { id }, body: { client_id: name('k'), body } });
    await until(() => there.timeline.entries.at(-1)?.message?.body === body, 'arrives whole');
});

test('cut off, written to meanwhile, back: everything once and in order, from its place', async () => {
    const { there, proxy, say, bob } = await scene();
    await say(3);
    await until(() => seqs(there).length === 3, 'three');
    const place = bob.state.position;
    proxy.down = true;
    proxy.cutAll();
    await say(20);
    proxy.down = false;
    await until(() => seqs(there).length === 23, 'all are there', 20_000);
    assert.deepEqual(seqs(there), range(1, 23));
    assert.equal(proxy.seen('GET', stream).at(-1).headers['last-event-id'], place);
    assert.ok(!proxy.log.some((one) => one.path.includes('eyJ')), 'no token in a URL');
});

test('a stream that is refused three times is live again by itself, with its place', async () => {
    const { bob, proxy, there, say } = await scene();
    let refusals = 3;
    proxy.rule = ({ path }) => (stream.test(path) && refusals-- > 0 ? { status: 503, headers: { 'retry-after': '0' } } : null);
    const place = bob.state.position;
    proxy.cutAll();
    await say(2);
    await until(() => refusals < 0 && bob.state.phase === 'live', 'live again', 20_000);
    await until(() => seqs(there).length === 2, 'nothing is missing');
    assert.equal(proxy.seen('GET', stream).at(-1).headers['last-event-id'], place);
});

test('a stream without a byte for three heartbeats is dropped and opened afresh', async () => {
    const { proxy, there, say, bob } = await scene();
    proxy.silent = true;
    const before = proxy.seen('GET', stream).length;
    await say(2);
    await until(() => bob.state.phase !== 'live', 'noticed', 6_000);
    proxy.silent = false;
    await until(() => proxy.seen('GET', stream).length > before && seqs(there).length === 2, 'heard again', 15_000);
});

test('a message whose answers are lost is one message with one key', async () => {
    const { bob, there, proxy, id, ann } = await scene({ surroundings: { random: () => 0.05 } });
    const tries = () => proxy.seen('POST', /\/messages$/);
    proxy.rule = ({ method, path }) => {
        if (method !== 'POST' || !path.endsWith('/messages')) return null;
        return [{ after: 504 }, { status: 503 }, { after: 'cut' }, 'cut'][tries().length - 1] ?? null;
    };
    // Its own event would tell it as well; here only the answers count.
    proxy.silent = true;
    const key = there.send({ body: 'once' });
    assert.equal(there.timeline.entries.at(-1).clientId, key);
    await until(() => bob.outbox.length === 0, 'confirmed by an answer', 20_000);
    const page = await ann.api.getMessages({ path: { id } });
    assert.equal(page.items.filter((one) => one.client_id === key).length, 1);
    assert.equal(there.timeline.entries.filter((one) => one.kind !== 'gap' && (one.clientId ?? one.message.client_id) === key).length, 1);
    assert.equal(tries().length, 5);
    assert.ok(tries().every((one) => JSON.parse(one.body).client_id === key));
});

test('a page that is closed while its message waits: the next page sends it, with its key', async () => {
    const { a, ann, id, b, proxy } = await scene();
    const storage = memoryStore();
    proxy.rule = ({ method, path }) => (method === 'POST' && path.endsWith('/messages') ? { after: 504 } : stream.test(path) ? 'hang' : null);
    const first = join(a, proxy.url, { storage, device: 'x' });
    const key = first.conversation(id).send({ body: 'kept' });
    await until(() => first.outbox[0]?.error?.status === 504, 'tried', 10_000);
    await first.close();
    const second = join(a, world.urls[1], { storage, device: 'x' });
    await until(() => second.me !== null && second.outbox.length === 0 && second.state.phase === 'live', 'sent', 10_000);
    const page = await ann.api.getMessages({ path: { id } });
    assert.deepEqual(page.items.filter((one) => one.kind !== 'system').map((one) => one.client_id), [key]);
    assert.ok(b);
});
