// The module when something else takes over: another log, another gateway, another tab, the same page after a sleep.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { memoryStore } from '../seqline.js';
import { fakeLocks } from './fake_locks.js';
import { name, until } from './harness.js';
import { between, join, live, open, range, scene, seqs, stream, world } from './scene.js';

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

test('a gateway that is told to stop says goodbye: nothing is missing', async () => {
    const gateway = await world.gateway();
    const { bob, there, proxy, say } = await scene({ gateway: gateway.url });
    await say(3);
    await until(() => seqs(there).length === 3, 'three');
    const place = bob.state.position;
    const before = proxy.seen('GET', stream).length;
    let announced = 0;
    let back = 0;
    bob.on('state', ({ phase, reason }) => {
        if (reason === 'goodbye') [announced, proxy.target] = [Date.now(), new URL(world.urls[1])];
        if (announced > 0 && phase === 'live') back ||= Date.now();
    });
    void gateway.stop('SIGTERM');
    await until(() => announced > 0, 'goodbye', 10_000);
    await say(3);
    await until(() => seqs(there).length === 6 && back > 0, 'six', 15_000);
    assert.deepEqual(seqs(there), range(1, 6));
    assert.equal(proxy.seen('GET', stream)[before].headers['last-event-id'], place);
    // It was told so: it need not wait for as long as one that was cut off, which is a second at least.
    assert.ok(back - announced < 1_500, `${back - announced} ms`);
});

test('a gateway that is killed with messages on their way, both ways: each is there once, in order', async () => {
    const gateway = await world.gateway();
    const { b, bob, there, proxy, say, id, ann } = await scene({ gateway: gateway.url, surroundings: { random: () => 0.1 } });
    const keys = range(1, 30).map((n) => there.send({ body: `${n}` }));
    const saying = say(30);
    await until(() => seqs(there).length >= 10 && bob.outbox.length > 0, 'in the middle of it');
    const before = proxy.seen('GET', stream).length;
    let place;
    bob.on('state', ({ phase, position }) => phase !== 'live' && (place ??= position));
    await gateway.stop('SIGKILL');
    proxy.target = new URL(world.urls[1]);
    await saying;
    await until(() => bob.outbox.length === 0 && seqs(there).length === 60, 'all are there', 20_000);
    assert.deepEqual(seqs(there), range(1, 60));
    const page = await ann.api.getMessages({ path: { id }, query: { limit: 200 } });
    assert.deepEqual(page.items.filter((one) => one.sender === b).map((one) => one.client_id), keys);
    await until(() => bob.state.phase === 'live', 'live again', 10_000);
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
