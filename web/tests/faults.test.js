// The module with a bad network in between: cut, refused, answered by proxies, silent, byte by byte.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { connect, memoryStore } from '../seqline.js';
import { fakeLocks } from './fake_locks.js';
import { HostileProxy, name, until, World } from './harness.js';

/** @type {World} */
let world;
before(async () => (world = await World.start()));
after(() => world?.stop());

const open = [];
test.afterEach(async () => {
    for (const one of open.splice(0).reverse()) await (one.close ?? one.stop).call(one);
});

async function between(place = 0) {
    const proxy = await HostileProxy.start(world.urls[place]);
    open.push(proxy);
    return proxy;
}
function join(user, baseUrl, more = {}) {
    const chat = connect({ baseUrl, getToken: () => world.token(user), heartbeatMs: 1000, ...more });
    open.push(chat);
    return chat;
}
const live = (chat) => until(() => chat.state.phase === 'live', 'live');
const stream = /^\/v1\/events(\?|$)/;
const seqs = (conversation) => conversation.timeline.entries.filter((one) => one.kind === 'message').map((one) => one.seq);
const range = (from, to) => Array.from({ length: to - from + 1 }, (_, at) => from + at);

/** Bob behind a proxy, in a group with ann, who is not. */
async function scene(more = {}) {
    const [a, b] = [name('ann'), name('bob')];
    const proxy = await between(1);
    const [ann, bob] = [join(a, world.urls[0]), join(b, proxy.url, more)];
    await Promise.all([live(ann), live(bob)]);
    const { id } = await ann.createConversation({ kind: 'group', members: [b] });
    await until(() => bob.conversations.items.some((one) => one.id === id), 'on the list');
    const there = bob.conversation(id);
    await there.open();
    /** Says `count` things without the module, in order. */
    const say = async (count) => {
        for (let n = 0; n < count; n += 1) await ann.api.send({ path: { id }, body: { client_id: name('k'), body: 'm' } });
    };
    return { a, b, ann, bob, id, there, proxy, say };
}

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

test('resync: three refusals of the list, and all 300 that were missed are there, in order', async () => {
    const { bob, there, proxy, say, b } = await scene();
    await say(5);
    await until(() => seqs(there).length === 5, 'five');
    proxy.rule = () => 'cut';
    proxy.cutAll();
    const heard = [];
    bob.on('event', (event) => heard.push(event.type));
    await say(300);
    await world.loseLog(b);
    let refusals = 3;
    proxy.rule = ({ method, path }) => (method === 'GET' && path.startsWith('/v1/conversations?') && refusals-- > 0 ? { status: 503 } : null);
    bob.reconnect();
    await until(() => refusals < 0 && heard.includes('resync'), 'told to read again, and did', 30_000);
    await until(() => seqs(there).length === 305, 'all are there', 20_000);
    assert.deepEqual(seqs(there), range(1, 305));
    assert.equal(heard.filter((one) => one === 'resync').length, 1);
    bob.reconnect();
    await say(1);
    await until(() => seqs(there).length === 306, 'goes on');
    assert.equal(heard.filter((one) => one === 'resync').length, 1, 'the place moved with it');
});

test('history both ways around a place, with what arrives meanwhile kept apart', async () => {
    const { bob, there, say } = await scene();
    await say(160);
    await until(() => there.timeline.headSeq === 160, 'all are known');
    const other = join(bob.me, world.urls[0]).conversation(there.id);
    await until(() => other.parts.me() !== null, 'signed in');
    await other.open({ around: 60 });
    assert.ok(other.timeline.detached && seqs(other).includes(60));
    await say(1);
    await until(() => other.timeline.headSeq === 161 || other.info.head_seq === 161, 'a new one is known');
    assert.ok(!seqs(other).includes(161));
    while (other.timeline.hasNewer) await other.newer();
    while (other.timeline.hasOlder) await other.older();
    assert.deepEqual(seqs(other), range(1, 161));
});

test('a gateway that is told to stop says goodbye, and one that is killed does not: nothing is missing', async () => {
    const gateway = await world.gateway();
    const proxy = await HostileProxy.start(gateway.url);
    open.push(proxy);
    const [a, b] = [name('ann'), name('bob')];
    const [ann, bob] = [join(a, world.urls[0]), join(b, proxy.url)];
    await Promise.all([live(ann), live(bob)]);
    const { id } = await ann.createConversation({ kind: 'group', members: [b] });
    await until(() => bob.conversations.items.some((one) => one.id === id), 'on the list');
    const there = bob.conversation(id);
    await there.open();
    const say = async (count) => {
        for (let n = 0; n < count; n += 1) await ann.api.send({ path: { id }, body: { client_id: name('k'), body: 'm' } });
    };
    await say(3);
    await until(() => seqs(there).length === 3, 'three');
    const place = bob.state.position;
    const before = proxy.seen('GET', stream).length;
    void gateway.stop('SIGTERM');
    await until(() => bob.state.phase === 'waiting' && bob.state.reason === 'goodbye', 'goodbye', 10_000);
    await say(3);
    proxy.target = new URL(world.urls[1]);
    await until(() => seqs(there).length === 6, 'six', 15_000);
    assert.deepEqual(seqs(there), range(1, 6));
    assert.equal(proxy.seen('GET', stream)[before].headers['last-event-id'], place);
});

test('seven tabs have one stream, all hear it, and when its tab is closed another goes on', async () => {
    const [a, b] = [name('ann'), name('bob')];
    const proxy = await between();
    const [locks, storage] = [fakeLocks(), Object.assign(memoryStore(), { shared: true })];
    const tabs = range(1, 7).map(() => join(b, proxy.url, { storage, surroundings: { locks, Channel: BroadcastChannel } }));
    await Promise.all(tabs.map(live));
    assert.equal(proxy.streams, 1);
    const ann = join(a, world.urls[1]);
    const { id } = await ann.createConversation({ kind: 'group', members: [b] });
    const say = () => ann.api.send({ path: { id }, body: { client_id: name('k'), body: 'm' } });
    await say();
    await until(() => tabs.every((tab) => tab.conversations.known(id)?.head_seq === 1), 'all tabs know');
    const leader = tabs.find((tab) => tab.state.leader);
    await leader.close();
    await say();
    const rest = tabs.filter((tab) => tab !== leader);
    await until(() => rest.every((tab) => tab.conversations.known(id)?.head_seq === 2), 'the others go on', 15_000);
    assert.equal(proxy.streams, 1);
    assert.equal(rest.filter((tab) => tab.state.leader).length, 1);
    // One tab sends what any of them wrote, and all see it.
    rest[4].conversation(id).send({ body: 'from a tab' });
    await until(() => rest.every((tab) => tab.conversations.known(id)?.head_seq === 3 && tab.outbox.length === 0), 'sent once');
});

test('back from the other side of a sleep: a fresh stream with its place within 2 s', async () => {
    const window = new EventTarget();
    const { bob, proxy } = await scene({ surroundings: { window } });
    for (const event of [Object.assign(new Event('pageshow'), { persisted: true }), new Event('online')]) {
        const before = proxy.seen('GET', stream).length;
        const place = bob.state.position;
        window.dispatchEvent(event);
        await until(() => proxy.seen('GET', stream).length > before, `a fresh stream after ${event.type}`, 2_000);
        assert.equal(proxy.seen('GET', stream).at(-1).headers['last-event-id'], place);
        await live(bob);
    }
});
