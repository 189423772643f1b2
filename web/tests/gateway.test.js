// The module against real gateways: two of them, on a Redis and a Postgres of their own.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { connect } from '../seqline.js';
import { ERROR_CODES, LIVE_EVENTS, LOGGED_EVENTS, ROUTES, STREAM_EVENTS } from '../client/contract.js';
import { name, until, World } from './harness.js';

/** @type {World} */
let world;
before(async () => (world = await World.start()));
after(() => world?.stop());

const open = [];
/** A connection that the end of the test closes. */
function join(user, more = {}) {
    const chat = connect({ baseUrl: world.urls[more.gateway ?? 0], getToken: () => world.token(user), heartbeatMs: 1000, ...more });
    open.push(chat);
    return chat;
}
test.afterEach(async () => {
    for (const chat of open.splice(0)) await chat.close();
});

const live = (chat) => until(() => chat.state.phase === 'live', 'live');
const bodies = (conversation) => conversation.timeline.entries.filter((one) => one.kind === 'message' && one.message.kind !== 'system').map((one) => one.message.body);
const pending = (conversation) => conversation.timeline.entries.filter((one) => one.kind === 'pending');

/** Two users in a group, each at a gateway of its own. */
async function pair(more = {}) {
    const [a, b] = [name('ann'), name('bob')];
    const [ann, bob] = [join(a, { ...more.ann }), join(b, { gateway: 1, ...more.bob })];
    await Promise.all([live(ann), live(bob)]);
    const { id } = await ann.createConversation({ kind: 'group', members: [b], title: 'Two' });
    await until(() => bob.conversations.items.some((one) => one.id === id), 'the group is on the list of the other');
    const [here, there] = [ann.conversation(id), bob.conversation(id)];
    await Promise.all([here.open(), there.open()]);
    return { a, b, ann, bob, id, here, there };
}

test('the contract in contract.js is the one that the gateway tells', async () => {
    const document = await (await fetch(`${world.urls[0]}/openapi.json`)).json();
    const served = Object.entries(document.paths).flatMap(([path, methods]) => Object.keys(methods).filter((one) => /^(get|put|post|patch|delete)$/.test(one)).map((one) => `${one.toUpperCase()} ${path}`));
    const known = Object.values(ROUTES).map(([method, path]) => `${method} ${path}`);
    assert.deepEqual(known.sort(), served.sort());
    const schemas = document.components.schemas;
    assert.deepEqual(Object.keys(ERROR_CODES).sort(), [...schemas.Code.enum].sort());
    const types = schemas.Event.oneOf.map(({ $ref }) => schemas[$ref.split('/').at(-1)].properties.type.const);
    assert.deepEqual([...LOGGED_EVENTS, ...LIVE_EVENTS].sort(), types.sort());
    const text = JSON.stringify(document.paths['/v1/events']) + JSON.stringify(schemas);
    assert.ok(STREAM_EVENTS.length === 5 && text.includes('resync'));
});

test('two users talk, each at a gateway of its own', async () => {
    const { ann, here, there, bob, id, a } = await pair();
    for (let n = 1; n <= 20; n += 1) (n % 2 ? here : there).send({ body: `m${n}` });
    await until(() => bodies(here).length === 20 && bodies(there).length === 20, 'all are on both screens');
    assert.deepEqual(bodies(here), bodies(there));
    assert.equal(pending(here).length + pending(there).length, 0);
    const seqs = there.timeline.entries.map((one) => one.seq);
    assert.deepEqual(seqs, seqs.map((_, at) => seqs[0] + at));
    await until(() => bob.conversations.known(id)?.last_message?.seq === here.timeline.headSeq, 'the list shows the newest');
    await here.edit(here.timeline.entries.find((one) => one.message.sender === a).seq, { body: 'better' });
    await until(() => bodies(there).includes('better'), 'the edit is on the other screen');
    const seq = there.timeline.entries.find((one) => one.message.sender === a).seq;
    await here.react(seq, '👍', true);
    await until(() => there.timeline.entries.find((one) => one.seq === seq).message.reactions[0]?.count === 1, 'the reaction is on the other screen');
    assert.equal(here.timeline.entries.find((one) => one.seq === seq).message.reactions[0].me, true);
    await here.recall(seq);
    await until(() => there.timeline.entries.find((one) => one.seq === seq).message.deleted_at, 'the recall is on the other screen');
    assert.equal(ann.outbox.length, 0);
});

test('unread counts, read marks and the badge', async () => {
    const { here, there, bob, id } = await pair();
    for (let n = 0; n < 3; n += 1) here.send({ body: `m${n}` });
    await until(() => bob.conversations.known(id)?.me?.unread === 3, 'three unread');
    await until(() => bob.badge.unread === 3 && bob.badge.conversations === 1, 'the badge says so');
    there.seen(there.timeline.headSeq);
    await until(() => bob.conversations.known(id)?.me?.unread === 0 && bob.badge.unread === 0, 'nothing unread');
    await until(() => [...here.readPositions.values()].includes(there.timeline.headSeq), 'the other sees that it was read');
    await there.setPreferences({ muted: true });
    here.send({ body: 'quiet' });
    await until(() => bob.conversations.known(id)?.me?.unread === 1, 'counted');
    assert.equal(bob.badge.unread, 0);
});

test('whoever is removed loses it, whoever joins gets it', async () => {
    const { b, bob, here, id } = await pair();
    await here.remove(b);
    await until(() => !bob.conversations.items.some((one) => one.id === id), 'gone from the list');
    await here.invite([b]);
    await until(() => bob.conversations.items.some((one) => one.id === id), 'back on the list');
    await here.rename('Three');
    await until(() => bob.conversations.known(id)?.title === 'Three', 'renamed');
});

test('events as an async iterator, in order', async () => {
    const { bob, here } = await pair();
    const got = [];
    const stop = new AbortController();
    const reading = (async () => {
        for await (const event of bob.events({ signal: stop.signal })) if (event.type === 'message.created') got.push(event.data.message.body);
    })();
    for (let n = 0; n < 10; n += 1) here.send({ body: `${n}` });
    await until(() => got.length === 10, 'ten events');
    assert.deepEqual(got, ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    stop.abort();
    await reading;
});

test('a token that expires is renewed without losing the place', async () => {
    let asked = 0;
    const [a, b] = [name('ann'), name('bob')];
    // The gateways allow 30 s of difference between clocks: this one has 2 s left.
    const bob = join(b, { gateway: 1, getToken: () => world.token(b, { ttl: asked++ === 0 ? -28 : 3600 }) });
    const ann = join(a);
    await Promise.all([live(ann), live(bob)]);
    const { id } = await ann.createConversation({ kind: 'group', members: [b] });
    const got = [];
    bob.on('event', (event) => event.type === 'message.created' && got.push(event.data.message.body));
    const here = ann.conversation(id);
    let sent = 0;
    await until(() => {
        if (asked < 2) here.send({ body: `${sent++}` });
        return asked >= 2;
    }, 'another token was asked for');
    here.send({ body: `${sent++}` });
    await until(() => got.length === sent, 'nothing is missing');
    assert.deepEqual(got, got.map((_, n) => `${n}`));
});

test('a program that closes its connection can end', async () => {
    const door = fileURLToPath(new URL('../seqline.js', import.meta.url));
    const program = `
        import { connect } from ${JSON.stringify(door)};
        const chat = connect({ baseUrl: ${JSON.stringify(world.urls[0])}, getToken: () => ${JSON.stringify(world.token(name('zoe')))} });
        chat.on('state', ({ phase }) => { if (phase === 'live') { chat.conversation('single:00000000000000000000000000000000').send({ body: 'x' }); void chat.close(); } });`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'inherit' });
    const code = await Promise.race([new Promise((resolve) => child.once('exit', resolve)), until(() => false, 'the program ends', 10_000).catch(() => 'late')]);
    child.kill('SIGKILL');
    assert.equal(code, 0);
});
