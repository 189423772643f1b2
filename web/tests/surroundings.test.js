// The parts when what they stand on fails: tokens that do not come, stores that throw or are silent, pages without locks, listeners that throw,
// answers that are nobody's.
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { connect } from '../seqline.js';
import { Backoff, Pause } from '../client/backoff.js';
import { BadgeCount } from '../client/badge.js';
import { SeqlineError } from '../client/errors.js';
import { EventStream } from '../client/event_stream.js';
import { eventSourceTransport } from '../client/event_source_transport.js';
import { insist } from '../client/gap_filler.js';
import { Listeners } from '../client/listeners.js';
import { MediaStore } from '../client/media.js';
import { ReadMarks } from '../client/read_marks.js';
import { errorOf, Requests, TokenHolder } from '../client/requests.js';
import { joined } from '../client/signals.js';
import { memoryStore } from '../client/store.js';
import { Tabs } from '../client/tabs.js';
import { fakeLocks } from './fake_locks.js';
import { signToken, until } from './harness.js';

const tick = (ms = 5) => new Promise((resolve) => setTimeout(resolve, ms));
const never = () => new Promise(() => undefined);

test('a token that never comes ends the request by its deadline, and is asked for anew', async () => {
    let asked = 0;
    const tokens = new TokenHolder(() => (asked++ === 0 ? never() : 'good'), { withinMs: 60 });
    const requests = new Requests({ baseUrl: 'http://x', tokens, signal: new AbortController().signal, fetch: async () => new Response('{}') });
    await assert.rejects(requests.request('GET', '/v1/unread', { deadlineMs: 20 }), { code: 'timeout' });
    await until(async () => (await tokens.get().catch(() => null)) === 'good', 'asked again', 2_000);
    assert.equal(asked, 2);
});

test('a token of somebody else is not used for what this one has to send', async () => {
    const of = (sub) => signToken('s'.repeat(32), { sub });
    let who = 'ann';
    const tokens = new TokenHolder(() => of(who));
    const first = await tokens.get();
    who = 'bob';
    await assert.rejects(tokens.get(first), { status: 401 });
    who = 'ann';
    assert.ok(await tokens.get(first));
});

test('waits that a server asks for have an end', () => {
    assert.ok(new Backoff().next({ atLeastMs: 9e15 }) < 2 ** 31, 'a timer of more than that fires at once');
});

test('an answer of somebody in between is no refusal, but for what is about the request', async () => {
    const html = (status) => errorOf(new Response('<html>', { status }));
    for (const status of [302, 403, 404, 451, 502, 511]) assert.ok((await html(status)).temporary, `${status}`);
    for (const status of [400, 405, 413, 414]) assert.ok(!(await html(status)).temporary, `${status}`);
    const told = await errorOf(new Response(JSON.stringify({ code: 'not_found' }), { status: 404 }));
    assert.ok(!told.temporary);
});

test('a page that may have no locks leads, and asks once', async () => {
    let asked = 0;
    const locks = { request: async () => Promise.reject((asked++, new DOMException('no locks here', 'SecurityError'))) };
    let leads = 0;
    const tabs = new Tabs('t', { locks, Channel: BroadcastChannel, onMessage: () => undefined, onLead: async () => void (leads += 1), onFollow: () => undefined });
    tabs.queue();
    await tick(20);
    assert.equal(tabs.shared, false, 'and tells nobody what another may tell as well');
    tabs.close();
    assert.deepEqual([asked, leads], [1, 1]);
});

test('listeners that throw, also those who hear of errors, stop nobody', async () => {
    const heard = [];
    const thrown = [];
    const listeners = new Listeners(() => {
        throw new Error('in onError');
    });
    // The runner hears of it as well, and would say that the test is at fault.
    const others = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    process.on('uncaughtException', (error) => thrown.push(error.message));
    try {
        listeners.on('outbox', () => {
            throw new Error('in a listener');
        });
        listeners.on('outbox', () => heard.push('second'));
        listeners.on('error', (error) => heard.push(error.message));
        listeners.tell('outbox', { id: 'x' });
        await tick();
    } finally {
        process.removeAllListeners('uncaughtException');
        for (const other of others) process.on('uncaughtException', other);
    }
    assert.deepEqual(heard, ['in a listener', 'second']);
    assert.deepEqual(thrown, ['in onError']);
});

test('a slow reader of events is told to read again, and what waits for it has a bound', async () => {
    const listeners = new Listeners();
    const events = listeners.events();
    const first = events.next();
    for (let n = 0; n < 25_000; n += 1) listeners.tell('event', { type: 'message.created', n });
    assert.equal((await first).value.type, 'resync');
    assert.ok((await events.next()).value.n > 10_000, 'and goes on from there');
    listeners.close();
});

test('marks that were refused can be said again, and who was signed out for a moment is heard', async () => {
    const [sent, stop] = [[], new AbortController()];
    const faults = [new SeqlineError(401, 'unauthenticated', 'not now'), null, new SeqlineError(404, 'not_found', 'no')];
    const marks = new ReadMarks({
        send: async (_, seq) => {
            sent.push(seq);
            const fault = faults.shift();
            if (fault) throw fault;
            return { read_seq: seq, unread: 0, unread_more: false };
        },
        onMoved: () => undefined, visible: () => true, signal: stop.signal,
    });
    marks.seen('c', 5);
    await until(() => sent.length === 2, 'tried again');
    await tick(400);
    marks.seen('c', 6);
    await until(() => sent.length === 3, 'refused');
    await tick();
    marks.seen('c', 6);
    await until(() => sent.length === 4, 'said again');
    assert.deepEqual(sent, [5, 5, 6, 6]);
    stop.abort();
});

/** A stream whose connections are `lives`: each says hello, lives so long, and ends by that word. */
async function waitsOf(lives, { random = () => 0.5 } = {}) {
    const stop = new AbortController();
    let at = 0;
    let now = 0;
    const waits = [];
    const real = performance.now;
    performance.now = () => now;
    const stream = new EventStream({
        tokens: new TokenHolder(() => 'same'), position: async () => 'p', lost: async () => undefined, device: null, heartbeatMs: 1e6, random, onFrame: () => undefined,
        onState: ({ phase, retryAt }) => phase === 'waiting' && waits.push(Math.round((retryAt - Date.now()) / 10) * 10),
        transport: async ({ onBlock }) => {
            const life = lives[at++];
            if (!life) return stop.abort();
            onBlock({ event: 'message', data: '', hasData: false, id: 'p', retry: 4000 });
            onBlock({ event: 'hello', data: '{}', hasData: true });
            now += life.ms;
            if (life.word) onBlock({ event: life.word, data: '{}', hasData: true });
        },
    });
    const sleepless = globalThis.setTimeout;
    globalThis.setTimeout = (work, ms, ...more) => sleepless(work, ms > 500_000 ? ms : 1, ...more);
    try {
        await stream.run(stop.signal);
    } finally {
        globalThis.setTimeout = sleepless;
        performance.now = real;
    }
    return waits;
}

test('announced ends are followed by a short, spread wait; what ends again at once, or is cut, waits longer', async () => {
    const hour = { ms: 3_600_000, word: 'goodbye' };
    assert.deepEqual(await waitsOf([hour, hour]), [500, 500]);
    const soon = { ms: 10, word: 'goodbye' };
    assert.deepEqual(await waitsOf([hour, soon, soon, soon]), [500, 1000, 2000, 4000]);
    assert.deepEqual(await waitsOf([{ ms: 3_600_000, word: 'token_expired' }, { ms: 10, word: 'token_expired' }]), [1000], 'at once with a new token, but not for ever');
    assert.deepEqual(await waitsOf([{ ms: 3_600_000 }]), [4250], 'cut: what the server asked for, and more');
});

test('over EventSource, what has no id of its own is heard', async () => {
    const stop = new AbortController();
    class Source extends EventTarget {
        constructor() {
            super();
            setTimeout(() => {
                const say = (type, lastEventId) => this.dispatchEvent(Object.assign(new Event(type), { data: '{}', lastEventId }));
                say('hello', 'p1');
                say('message.created', 'p2');
                say('typing.updated', 'p2');
                say('typing.updated', 'p2');
                stop.abort();
            }, 1);
        }
        close() {}
    }
    const blocks = [];
    const transport = eventSourceTransport({ url: () => 'u' }, { makeTicket: async () => ({ ticket: 't' }) }, { Source, silenceMs: 1000 });
    await transport({ position: 'p1', device: null, signal: stop.signal, onLife: () => undefined, onBlock: (block) => blocks.push([block.event, block.id]) }).catch(() => undefined);
    assert.deepEqual(blocks, [['hello', undefined], ['message.created', 'p2'], ['typing.updated', undefined], ['typing.updated', undefined]]);
});

test('a refusal of the list by somebody in between is no refusal for ever', async () => {
    let refusals = 2;
    const refused = [];
    const work = async () => {
        if (refusals-- > 0) throw new SeqlineError(403, 'forbidden', 'not yours');
        return 'done';
    };
    assert.equal(await insist(work, new AbortController().signal, { refused: (error) => refused.push(error.code) }), 'done');
    assert.deepEqual(refused, ['forbidden', 'forbidden'], 'and is told of');
});

test('a tab that missed what the leading one told reads again', async () => {
    const locks = fakeLocks();
    const storage = Object.assign(memoryStore(), { shared: true });
    const getToken = () => signToken('s'.repeat(32), { sub: 'ann' });
    let lists = 0;
    const hello = (signal) => new ReadableStream({
        start(controller) {
            controller.enqueue(new TextEncoder().encode('retry: 1000\nid: p1\n\nevent: hello\ndata: {}\n\n'));
            signal.addEventListener('abort', () => controller.error(signal.reason));
        },
    });
    const fetch = async (url, { signal }) => {
        if (url.includes('/v1/events')) return new Response(hello(signal), { headers: { 'Content-Type': 'text/event-stream' } });
        if (url.includes('/v1/unread')) return new Response('{"total":0,"conversations":0}');
        lists += 1;
        return new Response('{"items":[],"events_head":"p1"}');
    };
    const [name, rest] = ['seqline:http://x:ann', { baseUrl: 'http://x', getToken, storage, device: 'd', surroundings: { locks, Channel: BroadcastChannel, fetch } }];
    const leader = connect(rest);
    await until(() => leader.state.phase === 'live', 'the first leads');
    const follower = connect(rest);
    await until(() => follower.state.phase === 'live', 'the second follows');
    const tell = new BroadcastChannel(name);
    const frame = (id) => ({ kind: 'place', id });
    tell.postMessage({ kind: 'frame', frame: frame('p2'), after: 'p1' });
    await until(() => follower.state.position === 'p2', 'heard');
    await tick(20);
    const before = lists;
    const behind = [];
    follower.conversations.fallBehind = () => behind.push('list');
    follower.conversation('c').fallBehind = () => behind.push('window');
    tell.postMessage({ kind: 'frame', frame: frame('p4'), after: 'p3' });
    await until(() => lists > before, 'read again', 2_000);
    assert.deepEqual(behind, ['list', 'window'], 'what is told from now on is not all');
    tell.postMessage({ kind: 'frame', frame: frame('p5'), after: 'p4' });
    await until(() => follower.state.position === 'p5', 'heard');
    assert.equal(lists, before + 1, 'once');
    // The one that leads has lost its place, and begins at another.
    tell.postMessage({ kind: 'frame', frame: frame('p9'), after: null });
    await until(() => lists > before + 1, 'read again', 2_000);
    tell.close();
    await Promise.all([leader.close(), follower.close()]);
});

test('signals that are put together abort with the first, by its reason, and are let go of', () => {
    const [first, second] = [new AbortController(), new AbortController()];
    const { signal, free } = joined(undefined, first.signal, null, second.signal);
    second.abort('enough');
    assert.deepEqual([signal.aborted, signal.reason], [true, 'enough']);
    free();
    assert.equal(getEventListeners(first.signal, 'abort').length, 0);
    assert.equal(joined(first.signal, second.signal).signal.reason, 'enough', 'also what had aborted before');
});

test('what is over holds on to nothing that goes on', async () => {
    const page = new AbortController();
    const tokens = new TokenHolder(() => 'good', { signal: page.signal });
    const requests = new Requests({ baseUrl: 'http://x', tokens, signal: page.signal, fetch: async () => new Response('{}') });
    const pause = new Pause();
    for (let n = 0; n < 20; n += 1) {
        await requests.request('GET', '/v1/unread', { signal: page.signal });
        await pause.wait(1, page.signal);
        await tokens.get('good', page.signal);
    }
    assert.equal(getEventListeners(page.signal, 'abort').length, 0);
});

test('a fetch that does not listen to signals holds nobody up', async () => {
    const requests = new Requests({ baseUrl: 'http://x', tokens: new TokenHolder(() => 'good'), signal: new AbortController().signal, fetch: never });
    await assert.rejects(requests.request('GET', '/v1/unread', { deadlineMs: 20 }), { code: 'timeout' });
    const stop = new AbortController();
    const asking = requests.request('GET', '/v1/unread', { signal: stop.signal });
    stop.abort(new Error('enough'));
    await assert.rejects(asking, /enough/);
});

test('the badge is asked for until it is known', async () => {
    let refusals = 1;
    const getUnread = async () => {
        if (refusals-- > 0) throw new SeqlineError(503, 'unavailable', 'not now');
        return { total: 3, conversations: 2 };
    };
    const badge = new BadgeCount({ api: { getUnread }, signal: new AbortController().signal, onChange: () => undefined });
    badge.ask(0);
    await until(() => badge.value.unread === 3, 'known', 2_000);
});

/** Uploads as a browser tells of them: all bytes are sent, then an answer comes. */
function uploads(t, answers) {
    class Request {
        upload = {};
        open() {}
        setRequestHeader() {}
        getResponseHeader() {
            return null;
        }
        send(blob) {
            for (const share of [0.5, 1]) this.upload.onprogress({ loaded: blob.size * share, total: blob.size });
            [this.status, this.responseText] = answers.shift();
            setTimeout(() => (this.onload(), this.onloadend()), 1);
        }
    }
    globalThis.XMLHttpRequest = Request;
    t.after(() => delete globalThis.XMLHttpRequest);
    let made = 0;
    const tokens = new TokenHolder(() => `t${made++}`);
    return new MediaStore(new Requests({ baseUrl: 'http://x', tokens, signal: new AbortController().signal }));
}

test('an upload is told to be done when the gateway has it, and not before', async (t) => {
    const blob = new Blob(['12345678'], { type: 'image/png' });
    const shares = [];
    const onProgress = (share) => shares.push(share);
    const media = uploads(t, [[401, '{"code":"token_expired"}'], [201, '{"id":"a"}'], [413, '{"code":"too_large"}']]);
    assert.deepEqual(await media.upload(blob, { onProgress }), { id: 'a' });
    assert.deepEqual(shares.splice(0), [0, 0.5, 0.99, 0, 0.5, 0.99, 1], 'begun anew with a new token');
    await assert.rejects(media.upload(blob, { onProgress }), { code: 'too_large' });
    assert.deepEqual(shares, [0, 0.5, 0.99]);
});

test('what somebody in between answers is not taken for a picture, nor kept', async () => {
    const answers = [new Response('<html>', { headers: { 'Content-Type': 'text/html' } }), new Response('x', { headers: { 'Content-Type': 'image/png' } })];
    const requests = new Requests({ baseUrl: 'http://x', tokens: new TokenHolder(() => 'good'), signal: new AbortController().signal, fetch: async () => answers.shift() });
    const media = new MediaStore(requests);
    await assert.rejects(media.url('a'), { code: 'answer' });
    assert.match(await media.url('a'), /^blob:/);
    media.close();
});

test('an empty id moves no place', async () => {
    const [frames, stop] = [[], new AbortController()];
    const stream = new EventStream({
        tokens: new TokenHolder(() => 'same'), position: async () => 'p', lost: async () => undefined, device: null, heartbeatMs: 1000,
        onFrame: (frame) => frames.push(frame), onState: () => undefined,
        transport: async ({ onBlock }) => {
            onBlock({ event: 'message', data: '', hasData: false, id: '' });
            onBlock({ event: 'hello', data: '{}', hasData: true, id: '' });
            stop.abort();
        },
    });
    await stream.run(stop.signal);
    assert.deepEqual(frames, [{ kind: 'event', name: 'hello', id: null, data: {} }]);
});

test('a list that is refused is told of and asked for again', async (t) => {
    let refusals = 1;
    const heard = [];
    const fetch = async (url, { signal }) => {
        if (url.includes('/v1/events')) return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
        if (url.includes('/v1/unread')) return new Response('{"total":0,"conversations":0}');
        if (refusals-- > 0) return new Response('{"code":"forbidden"}', { status: 403 });
        return new Response('{"items":[],"events_head":"p1"}');
    };
    const getToken = () => signToken('s'.repeat(32), { sub: 'ann' });
    const chat = connect({ baseUrl: 'http://x', getToken, device: 'd', surroundings: { fetch }, onError: (error) => heard.push(error.code) });
    t.after(() => chat.close());
    await until(() => chat.conversations.loaded, 'read', 3_000);
    assert.deepEqual(heard, ['forbidden']);
});
