// The parts that need no gateway: bytes into events, events into a window, waits, lines of messages, tabs.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Backoff } from '../client/backoff.js';
import { SeqlineError } from '../client/errors.js';
import { Outbox } from '../client/outbox.js';
import { ReadMarks } from '../client/read_marks.js';
import { SseParser } from '../client/sse_parser.js';
import { memoryStore } from '../client/store.js';
import { alone, Tabs } from '../client/tabs.js';
import { Timeline } from '../client/timeline.js';
import { Typing } from '../client/typing.js';
import { uuidv7 } from '../client/uuidv7.js';
import { fakeLocks } from './fake_locks.js';
import { until } from './harness.js';

/** Numbers that look random and are the same each time. */
function numbers(seed) {
    let state = seed;
    return (below) => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return Math.floor((state / 2 ** 32) * below);
    };
}

const STREAM = `\uFEFFretry: 1500\nid: a.1-0\n\nevent: hello\r\ndata: {}\r\n\r\n: a comment\n\nid: a.2-0\rdata: one\rdata:two\r\rid: a.3-0\nevent: message.created\ndata: ${'北'.repeat(4000)}😀\n\nunknown: x\n\n`;
const BLOCKS = [
    { event: 'message', data: '', hasData: false, id: 'a.1-0', retry: 1500 },
    { event: 'hello', data: '{}', hasData: true },
    { event: 'message', data: 'one\ntwo', hasData: true, id: 'a.2-0' },
    { event: 'message.created', data: `${'北'.repeat(4000)}😀`, hasData: true, id: 'a.3-0' },
];

test('a stream is read the same however its bytes are cut', () => {
    const bytes = new TextEncoder().encode(STREAM);
    for (const size of [1, 2, 3, 5, 7, 1000, bytes.length]) {
        const parser = new SseParser();
        const blocks = [];
        for (let at = 0; at < bytes.length; at += size) blocks.push(...parser.push(bytes.subarray(at, at + size)));
        assert.deepEqual(blocks, BLOCKS, `cut every ${size} bytes`);
    }
    const random = numbers(7);
    for (let round = 0; round < 50; round += 1) {
        const parser = new SseParser();
        const blocks = [];
        for (let at = 0; at < bytes.length; ) {
            const size = 1 + random(random(2) === 0 ? 4 : 3000);
            blocks.push(...parser.push(bytes.subarray(at, at + size)));
            at += size;
        }
        assert.deepEqual(blocks, BLOCKS);
    }
});

test('waits have full jitter below a ceiling and never end', () => {
    const highest = new Backoff({ baseMs: 100, capMs: 1000, random: () => 1 });
    assert.deepEqual([1, 2, 3, 4, 5, 6].map(() => highest.next()), [100, 200, 400, 800, 1000, 1000]);
    for (let n = 0; n < 5000; n += 1) assert.equal(highest.next(), 1000);
    assert.equal(new Backoff({ random: () => 0 }).next({ atLeastMs: 3000 }), 3000);
    const waits = new Set(Array.from({ length: 50 }, () => new Backoff({ baseMs: 10_000 }).next()));
    assert.ok(waits.size > 25, 'they are spread');
});

test('keys of send intents are UUIDv7, in order of time', () => {
    assert.match(uuidv7(), /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.ok(uuidv7(1_800_000_000_000) < uuidv7(1_800_000_000_001));
});

const message = (seq, more = {}) => ({ id: `i${seq}`, conversation_id: 'c', seq, rev: seq, sender: 'x', kind: 'text', body: `${seq}`, media: [], mentions: [], reactions: [], created_at: '', ...more });
const page = (all, from, to, head, voids = []) => ({
    items: all.filter((one) => one.seq >= from && one.seq <= to), has_more_before: all.some((one) => one.seq < from), has_more_after: all.some((one) => one.seq > to), head_seq: head, voids,
});

test('a window agrees with a simple model whatever happens in whatever order', () => {
    for (let seed = 1; seed <= 300; seed += 1) {
        const random = numbers(seed);
        // The server: a map from seq to message, some seqs void. The client: a Timeline. Events get lost, doubled, old.
        const server = new Map();
        let head = 0;
        let rev = 0;
        const voids = [];
        const all = () => [...server.values()].sort((a, b) => a.seq - b.seq);
        const events = [];
        const write = () => {
            if (random(12) === 0) {
                voids.push([head + 1, head + 3]);
                head += 3;
            }
            head += 1;
            rev += 1;
            const one = message(head, { rev });
            server.set(head, one);
            events.push(one);
        };
        const change = () => {
            const one = all()[random(server.size)];
            if (!one) return;
            rev += 1;
            const next = { ...one, rev, body: `edited ${rev}` };
            server.set(one.seq, next);
            events.push(next);
        };
        for (let n = 0; n < 30; n += 1) write();
        const line = new Timeline();
        const reset = (from, to) => line.reset(page(all(), from, to, head, voids));
        reset(20, head);
        events.length = 0;
        const fill = () => {
            const gap = line.gaps[0];
            if (!gap) return;
            const items = all().filter((one) => one.seq >= gap.from).slice(0, 1 + random(5));
            const last = items.at(-1)?.seq ?? head;
            line.fill({ items, has_more_before: true, has_more_after: last < all().at(-1).seq, head_seq: head, voids }, gap.from - 1);
        };
        for (let step = 0; step < 80; step += 1) {
            const what = random(10);
            if (what < 3) write();
            else if (what === 3) change();
            else if (what < 7 && events.length > 0) {
                const one = events[random(3) === 0 ? random(events.length) : 0];
                line.apply(one);
                if (random(4) > 0) events.splice(events.indexOf(one), 1);
            } else if (what === 7) fill();
            else if (what === 8 && line.hasOlder) {
                const older = all().filter((one) => one.seq < line.from).slice(-5);
                line.addOlder({ items: older, has_more_before: all().some((one) => one.seq < (older[0]?.seq ?? 0)), has_more_after: true, head_seq: head, voids }, line.from);
            } else if (what === 9) {
                if (line.hasNewer) {
                    const newer = all().filter((one) => one.seq > line.to).slice(0, 5);
                    const more = all().some((one) => one.seq > (newer.at(-1)?.seq ?? head));
                    line.addNewer({ items: newer, has_more_before: true, has_more_after: more, head_seq: head, voids }, line.to);
                } else if (random(8) === 0) reset(5, 12);
            }
            const seqs = line.messages.map((one) => one.seq);
            assert.deepEqual(seqs, [...new Set(seqs)].sort((a, b) => a - b), `seed ${seed}: in order, none doubled`);
            const missing = all().filter((one) => one.seq >= line.from && one.seq <= line.to && !line.get(one.seq));
            for (const one of missing) assert.ok(line.gaps.some((gap) => gap.from <= one.seq && one.seq <= gap.to), `seed ${seed} step ${step}: ${one.seq} is missing and no gap says so`);
            assert.ok(!line.atEnd || line.to >= line.head);
        }
        // In the end everything that was lost is asked for, and the window is what the server has.
        while (events.length > 0) line.apply(events.shift());
        for (const one of all()) line.apply(one);
        if (line.atEnd) line.reach(head);
        for (let n = 0; line.gaps.length > 0; n += 1) {
            assert.ok(n < 100, `seed ${seed}: gaps close`);
            fill();
        }
        assert.deepEqual(line.messages.map((one) => [one.seq, one.body]), all().filter((one) => one.seq >= line.from && one.seq <= line.to).map((one) => [one.seq, one.body]), `seed ${seed}`);
    }
});

test('nothing is glued onto a window that is not at the end', () => {
    const all = Array.from({ length: 200 }, (_, at) => message(at + 1));
    const line = new Timeline();
    line.reset(page(all, 26, 75, 200));
    assert.ok(line.hasNewer);
    line.apply(message(201, { kind: 'system' }));
    assert.equal(line.to, 75);
    while (line.hasNewer) line.addNewer(page([...all, message(201)], line.to + 1, line.to + 50, 201), line.to);
    assert.deepEqual(line.messages.map((one) => one.seq), Array.from({ length: 176 }, (_, at) => at + 26));
});

test('an older state never wins, a renumbered message leaves a hole that is asked for', () => {
    const line = new Timeline();
    line.reset(page([1, 2, 3, 4, 5].map((seq) => message(seq)), 1, 5, 5));
    line.apply(message(3, { rev: 9, body: 'new' }));
    line.apply(message(3, { rev: 8, body: 'old' }));
    assert.equal(line.get(3).body, 'new');
    line.resequence(4, { ...message(6), id: 'i4', rev: 10 });
    assert.deepEqual(line.gaps.map(({ from, to }) => [from, to]), [[4, 4]]);
    assert.equal(line.get(6).id, 'i4');
    line.apply(message(4, { id: 'other', rev: 11 }));
    assert.equal(line.gaps.length, 0);
    line.react(2, 12, [{ emoji: '👍', count: 2, me: true }]);
    line.apply(message(2, { rev: 13, reactions: [{ emoji: '👍', count: 3 }] }));
    assert.deepEqual(line.get(2).reactions, [{ emoji: '👍', count: 3, me: true }]);
    line.clearTo(3);
    assert.deepEqual(line.messages.map((one) => one.seq), [4, 5, 6]);
});

/** An outbox whose server is `answer`. */
function outboxOf(store, answer, sent = []) {
    const box = new Outbox({ store, random: () => 0.01, onSent: () => undefined, onChange: () => undefined, send: async (id, body) => answer(id, body, sent) });
    box.begin('outbox:me:');
    return box;
}

test('a line goes in order, with the same key in every try, and a refusal does not stop it', async () => {
    const [store, stop, sent] = [memoryStore(), new AbortController(), []];
    let fails = 3;
    const box = outboxOf(store, async (id, body) => {
        sent.push([id, body.body, body.client_id]);
        if (body.body === 'bad') throw new SeqlineError(422, 'invalid_field', 'no');
        if (body.body === '1' && fails-- > 0) throw new SeqlineError(fails === 2 ? 504 : fails === 1 ? 429 : 0, 'answer', 'later');
        return { client_id: body.client_id };
    });
    const keys = ['1', 'bad', '2', '3'].map((body) => box.add('c', { body }));
    assert.equal(box.items('c').length, 4);
    void box.run(stop.signal);
    await until(() => box.items('c').length === 1, 'only the refused one is left');
    assert.deepEqual(sent.map(([, body]) => body), ['1', '1', '1', '1', 'bad', '2', '3']);
    assert.deepEqual(new Set(sent.slice(0, 4).map(([, , key]) => key)), new Set([keys[0]]));
    const [left] = box.items('c');
    assert.deepEqual([left.state, left.error.code, left.clientId], ['failed', 'invalid_field', keys[1]]);
    box.discard(keys[1]);
    await until(async () => (await store.entries('outbox:')).length === 0, 'nothing is kept');
    stop.abort();
});

test('what waits survives its page, key and words', async () => {
    const [store, stop] = [memoryStore(), new AbortController()];
    const before = outboxOf(store, async () => Promise.reject(new SeqlineError(504, 'answer', 'later')));
    void before.run(stop.signal);
    const key = before.add('c', { body: 'kept' });
    await until(async () => (await store.entries('outbox:')).length === 1 && before.items()[0].error?.status === 504, 'was tried');
    before.retry(key);
    stop.abort();
    const [again, sent] = [new AbortController(), []];
    const after = outboxOf(store, async (id, body) => (sent.push([body.client_id, body.body]), { client_id: body.client_id }));
    void after.run(again.signal);
    await until(() => sent.length === 1 && after.items().length === 0, 'is sent by the next page');
    assert.deepEqual(sent, [[key, 'kept']]);
    again.abort();
});

test('typing is told every 3 s at most, believed for 6 s, and a message ends it', (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    let now = 10_000;
    t.mock.method(performance, 'now', () => now);
    const told = [];
    const typing = new Typing({ send: async (id, is) => void told.push(is), onChange: () => undefined });
    for (let n = 0; n < 60; n += 1, now += 100) typing.tell('c', true);
    assert.equal(told.length, 2);
    typing.heard('c', 'bob', true);
    t.mock.timers.tick(5_999);
    assert.deepEqual(typing.users('c'), ['bob']);
    t.mock.timers.tick(1);
    assert.deepEqual(typing.users('c'), []);
    typing.heard('c', 'bob', true);
    typing.heard('c', 'bob', false);
    assert.deepEqual(typing.users('c'), []);
    typing.close();
});

test('nothing is read on a hidden page, and marks only go forward', async () => {
    let visible = false;
    const [sent, stop] = [[], new AbortController()];
    const marks = new ReadMarks({ send: async (id, seq) => (sent.push(seq), { read_seq: seq, unread: 0, unread_more: false }), onMoved: () => undefined, visible: () => visible, signal: stop.signal });
    for (const seq of [1, 2, 9]) marks.seen('c', seq);
    visible = true;
    marks.seen('c', 5);
    marks.seen('c', 4);
    await until(() => sent.length > 0, 'a mark');
    marks.seen('c', 3);
    marks.seen('c', 6);
    await until(() => sent.length > 1, 'another mark');
    assert.deepEqual(sent, [5, 6]);
    stop.abort();
});

test('one tab leads, the next takes over, a silent one is robbed', async () => {
    const locks = fakeLocks();
    const tabs = [1, 2, 3].map(() => new Tabs('t', { locks, Channel: BroadcastChannel, onMessage: () => undefined, onLead: (signal) => new Promise((resolve) => signal.addEventListener('abort', resolve)), onFollow: () => undefined }));
    for (const tab of tabs) tab.queue();
    const leads = () => tabs.map((tab) => Number(tab.leads)).join('');
    await until(() => leads() === '100', 'the first leads');
    tabs[0].close();
    await until(() => leads() === '010', 'the second leads');
    tabs[2].queue({ steal: true });
    await until(() => leads() === '001', 'the third has taken it');
    tabs[2].close();
    await until(() => leads() === '010', 'the second had queued again');
    tabs[1].close();
    const stop = new AbortController();
    let at = 0;
    let most = 0;
    await Promise.all([1, 2, 3].map(() => alone(locks, 'x', stop.signal, async () => {
        most = Math.max(most, ++at);
        await new Promise(setImmediate);
        at -= 1;
    })));
    assert.equal(most, 1);
});
