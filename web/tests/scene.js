// What the tests with a bad network share: two users in a group, one of them behind a proxy that misbehaves.
import { after, afterEach, before } from 'node:test';
import { connect } from '../seqline.js';
import { HostileProxy, name, until, World } from './harness.js';

/** The system of this file's tests; there once they run. @type {World} */
export let world;
before(async () => (world = await World.start()));
after(() => world?.stop());

/** What the end of a test closes. */
export const open = [];
afterEach(async () => {
    for (const one of open.splice(0).reverse()) await (one.close ?? one.stop).call(one);
});

export async function between(url = world.urls[0]) {
    const proxy = await HostileProxy.start(url);
    open.push(proxy);
    return proxy;
}
export function join(user, baseUrl, more = {}) {
    const chat = connect({ baseUrl, getToken: () => world.token(user), heartbeatMs: 1000, ...more });
    open.push(chat);
    return chat;
}
export const live = (chat) => until(() => chat.state.phase === 'live', 'live');
export const stream = /^\/v1\/events(\?|$)/;
export const seqs = (conversation) => conversation.timeline.entries.filter((one) => one.kind === 'message').map((one) => one.seq);
export const range = (from, to) => Array.from({ length: to - from + 1 }, (_, at) => from + at);

/** Bob behind a proxy, before a gateway of the test's own if it names one, in a group with ann, who is not. */
export async function scene({ gateway = world.urls[1], ...more } = {}) {
    const [a, b] = [name('ann'), name('bob')];
    const proxy = await between(gateway);
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
