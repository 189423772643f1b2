// One conversation's window and the list when the stream has passed over something: what is asked for, and what stays in view.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Conversation } from '../client/conversation.js';
import { ConversationList } from '../client/conversation_list.js';
import { SeqlineError } from '../client/errors.js';
import { GapFiller } from '../client/gap_filler.js';
import { Timeline } from '../client/timeline.js';
import { until } from './harness.js';

const messageOf = (seq, rev, body = `m${seq}`) => ({ id: `id${seq}`, conversation_id: 'c', seq, rev, sender: 'ann', client_id: null, kind: 'text', body, media: [], mentions: [], reactions: [] });
const infoOf = (id, rev, more = {}) => ({ id, kind: 'group', rev, head_seq: rev, title: `t${rev}`, updated_at: `2026-01-01T00:00:${String(rev % 60).padStart(2, '0')}Z`, me: { read_seq: 0, unread: 0, cleared_to: 0 }, ...more });
const eventOf = (type, id, rev, data) => ({ id: `${rev}`, type, conversation_id: id, rev, occurred_at: '', data });

function list(api) {
    return new ConversationList({ api, signal: new AbortController().signal, me: () => 'me', typing: () => [], onChange: () => undefined });
}

/** A server with one conversation, as far as a window needs it: messages by seq, each with its rev. */
function serverOf(count) {
    const server = { messages: new Map(), rev: 0, asked: [] };
    server.write = (seq, body) => {
        server.rev += 1;
        server.messages.set(seq, messageOf(seq, server.rev, body));
        return server.messages.get(seq);
    };
    for (let seq = 1; seq <= count; seq += 1) server.write(seq);
    server.info = () => infoOf('c', server.rev, { head_seq: server.messages.size });
    server.api = {
        getConversations: async () => ({ items: [server.info()], events_head: 'h' }),
        getConversation: async () => server.info(),
        getMessages: async ({ query: { since_rev: since, around, after, before, limit } }) => {
            server.asked.push({ since, around, after, before });
            const all = [...server.messages.values()];
            const head_seq = all.length;
            if (since !== undefined) {
                const later = all.filter((one) => one.rev > since).sort((a, b) => a.rev - b.rev);
                const items = later.slice(0, limit);
                return { items, next_rev: items.at(-1)?.rev ?? since, has_more: later.length > items.length, head_seq, voids: [] };
            }
            const from = around !== undefined ? Math.max(1, around - limit / 2) : after !== undefined ? after + 1 : Math.max(1, (before ?? head_seq + 1) - limit);
            const items = all.filter((one) => one.seq >= from).sort((a, b) => a.seq - b.seq).slice(0, limit);
            return { items, has_more_before: from > 1, has_more_after: items.at(-1).seq < head_seq, head_seq, voids: [] };
        },
    };
    return server;
}

function talkOf(api, more = {}) {
    const faults = [];
    const conversations = list(api);
    const parts = {
        api, list: conversations, peers: new Map(), me: () => 'me', signal: new AbortController().signal, onTimeline: () => undefined, onError: (error) => faults.push(error),
        outbox: { items: () => [], confirm: () => undefined }, typing: { heard: () => undefined, users: () => [] }, reads: { seen: () => undefined }, ...more,
    };
    const talk = new Conversation('c', parts);
    const fallBehind = () => {
        conversations.fallBehind();
        talk.fallBehind();
    };
    const apply = (event) => {
        conversations.apply(event);
        talk.apply(event);
    };
    return { talk, conversations, faults, fallBehind, apply, catchUp: () => talk.catchUp(parts.signal) };
}
const bodies = (talk) => talk.timeline.entries.map((one) => one.message?.body);
const seqs = (talk) => talk.timeline.entries.filter((one) => one.kind === 'message').map((one) => one.seq);

test('what the stream passed over is in the window, also when something newer came before it was asked for', async () => {
    const server = serverOf(3);
    const { talk, fallBehind, apply, catchUp } = talkOf(server.api);
    await talk.open();
    server.write(2, 'edited');
    fallBehind();
    apply(eventOf('message.created', 'c', server.rev + 1, { message: server.write(4) }));
    await catchUp();
    assert.deepEqual(bodies(talk), ['m1', 'edited', 'm3', 'm4']);
    // And so it is for what is passed over while the window is opened.
    const second = talkOf(server.api);
    const { getMessages } = server.api;
    server.api.getMessages = async (args) => {
        const page = await getMessages(args);
        server.api.getMessages = getMessages;
        server.write(1, 'edited too');
        second.fallBehind();
        second.apply(eventOf('message.created', 'c', server.rev + 1, { message: server.write(5) }));
        return page;
    };
    await second.talk.open();
    await until(() => bodies(second.talk).includes('edited too'), 'caught up', 1_000);
});

test('what was caught up with is not asked for again', async () => {
    const server = serverOf(200);
    const { talk, fallBehind, apply, catchUp } = talkOf(server.api);
    const said = () => {
        const seq = server.messages.size + 1;
        const message = server.write(seq);
        apply(eventOf('message.created', 'c', server.rev, { message }));
    };
    /** From which rev on it is asked for what was passed over. */
    const askedFrom = async () => {
        server.write(1, `edited at ${server.rev}`);
        fallBehind();
        await catchUp();
        assert.equal(bodies(talk)[0], server.messages.get(1).body);
        return server.asked.at(-1).since;
    };
    await talk.open();
    while (talk.timeline.hasOlder) await talk.older();
    assert.equal(await askedFrom(), 200);
    said();
    assert.equal(await askedFrom(), 202, 'after a catching up');
    fallBehind();
    await catchUp();
    said();
    assert.equal(await askedFrom(), 204, 'after one that found nothing');
});

test('a window that was opened since is whole: only what came after it is asked for', async () => {
    const server = serverOf(200);
    const { talk, fallBehind, apply, catchUp } = talkOf(server.api);
    await talk.open();
    fallBehind();
    await talk.jumpTo(10);
    apply(eventOf('message.created', 'c', server.rev + 1, { message: server.write(201) }));
    server.write(1, 'edited');
    fallBehind();
    await catchUp();
    assert.equal(server.asked.at(-1).since, 201);
    assert.equal(bodies(talk)[0], 'edited');
});

test('after thousands of changes the reader is where the reader was', async () => {
    const server = serverOf(3000);
    const { talk, fallBehind, catchUp } = talkOf(server.api);
    /** Changes so much that it is not read change by change. */
    const muchHappens = async () => {
        for (let seq = 1; seq <= 2500; seq += 1) server.write(seq, `changed ${server.rev}`);
        for (let more = 0; more < 100; more += 1) server.write(server.messages.size + 1);
        fallBehind();
        await catchUp();
    };
    await talk.open();
    await muchHappens();
    assert.equal(seqs(talk).at(-1), 3100, 'at the end what is new is shown');
    await talk.jumpTo(400);
    await muchHappens();
    assert.ok(seqs(talk).includes(400), 'where it was opened');
    await talk.jumpToEnd();
    await muchHappens();
    assert.equal(seqs(talk).at(-1), server.messages.size, 'asked for the end');
    await talk.jumpTo(400);
    while (!seqs(talk).includes(800)) await talk.newer();
    talk.seen(790);
    await muchHappens();
    assert.ok(seqs(talk).includes(790), 'far from where it was opened');
    assert.match(bodies(talk)[seqs(talk).indexOf(790)], /changed/);
    await talk.jumpToEnd();
    while (!seqs(talk).includes(2600)) await talk.older();
    talk.seen(2610);
    await muchHappens();
    assert.ok(seqs(talk).includes(2610), 'above the end');
    await talk.jumpToEnd();
    talk.seen(2610);
    talk.seen(seqs(talk).at(-1));
    await muchHappens();
    assert.equal(seqs(talk).at(-1), server.messages.size, 'back at the end');
});

test('a conversation that is gone when it is asked for leaves the list; one that somebody in between denies does not', async () => {
    const server = serverOf(3);
    const { talk, conversations, fallBehind, catchUp, faults } = talkOf(server.api);
    await conversations.refresh();
    await talk.open();
    const { getConversation } = server.api;
    let denials = 1;
    server.api.getConversation = async () => {
        if (denials-- > 0) throw new SeqlineError(404, 'answer', 'a page of a proxy');
        return getConversation();
    };
    fallBehind();
    await catchUp();
    assert.equal(conversations.items.length, 1);
    server.api.getConversation = async () => Promise.reject(new SeqlineError(404, 'not_found', 'gone'));
    fallBehind();
    await catchUp();
    assert.deepEqual([conversations.items.length, faults.length], [0, 0]);
});

test('a pair that somebody in between denies is not shown as one that has nothing to read', async () => {
    const api = { getConversation: async () => Promise.reject(new SeqlineError(404, 'answer', 'a page of a proxy')) };
    const parts = {
        api, list: list(api), peers: new Map([['single:1', 'bob']]), me: () => 'me', signal: new AbortController().signal, onTimeline: () => undefined,
        outbox: { items: () => [], confirm: () => undefined }, typing: { users: () => [] },
    };
    const pair = new Conversation('single:1', parts);
    await assert.rejects(pair.open(), { status: 404 });
    api.getConversation = async () => Promise.reject(new SeqlineError(404, 'not_found', 'not made yet'));
    await pair.open();
    assert.ok(pair.timeline.loaded);
});

test('a hole whose messages are refused, or not counted yet, is not shown as being loaded', async () => {
    const page = { items: [], has_more_before: false, has_more_after: false, head_seq: 3, voids: [] };
    for (const read of [async () => Promise.reject(new SeqlineError(403, 'forbidden', 'no')), async () => page]) {
        const line = new Timeline();
        line.reset(page);
        line.reach(6);
        const shown = [];
        new GapFiller(line, { read, onChange: () => shown.push(line.gaps[0]?.loading), signal: new AbortController().signal }).look();
        await until(() => shown.length >= 2, 'told', 2_000);
        assert.deepEqual(shown, [true, false]);
    }
});

test('a hole is asked for again only when that brought something', async () => {
    const line = new Timeline();
    const empty = { items: [], has_more_before: false, has_more_after: true, head_seq: 9, voids: [] };
    line.reset({ ...empty, has_more_after: false, head_seq: 3 });
    line.reach(9);
    let asked = 0;
    const stop = new AbortController();
    new GapFiller(line, { read: async () => (asked++ > 20 ? stop.abort() : empty, empty), onChange: () => undefined, signal: stop.signal }).look();
    await until(() => asked > 0, 'asked', 2_000);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(asked, 1);
});

test('an answer that was on its way when one was removed does not bring the conversation back', async () => {
    let answer;
    const all = list({ getConversations: async () => ({ items: [infoOf('c', 1)], events_head: 'h' }), getConversation: () => new Promise((resolve) => (answer = resolve)) });
    await all.refresh();
    const asking = all.get('c').catch(() => undefined);
    all.apply(eventOf('member.removed', 'c', 2, { user_id: 'me' }));
    answer(infoOf('c', 1));
    await asking;
    assert.deepEqual(all.items, []);
    await all.refresh();
    assert.equal(all.items.length, 1, 'who was let in again while nothing was heard sees it again');
});

test('what is made while the list is on its way stays on it', async () => {
    let answer;
    const all = list({ getConversations: () => new Promise((resolve) => (answer = resolve)) });
    const first = all.refresh();
    answer({ items: [], events_head: 'h' });
    await first;
    const second = all.refresh();
    all.apply(eventOf('conversation.created', 'new', 1, { conversation: infoOf('new', 1) }));
    answer({ items: [], events_head: 'h' });
    await second;
    assert.deepEqual(all.items.map((one) => one.id), ['new']);
});

test('what the stream passed over is learned, also when newer events came before the list', async () => {
    let page = [infoOf('c', 5)];
    const all = list({ getConversations: async () => ({ items: page, events_head: 'h' }), getConversation: async () => infoOf('c', 11, { title: 'renamed' }) });
    await all.refresh();
    // Renamed at rev 7, which is passed over; the list is from rev 9; something else happens at rev 11.
    page = [infoOf('c', 9, { title: 'renamed' })];
    all.fallBehind();
    const reading = all.refresh();
    all.apply(eventOf('reaction.changed', 'c', 11, { seq: 1, reactions: [] }));
    await reading;
    assert.equal(all.known('c').rev, 11, 'what was told stays');
    await until(() => all.known('c').title === 'renamed', 'the new title', 1_000);
});

test('an answer from before something was passed over does not count as one from after it', async () => {
    const answers = [];
    const getConversation = () => new Promise((resolve) => answers.push(resolve));
    let page = [infoOf('c', 9)];
    const all = list({ getConversations: async () => ({ items: page, events_head: 'h' }), getConversation });
    await all.refresh();
    const early = all.get('c');
    all.fallBehind();
    const later = all.get('c');
    assert.equal(answers.length, 2, 'asked again');
    answers[0](infoOf('c', 5));
    await early;
    assert.equal(all.known('c').rev, 9, 'older, and asked for before');
    answers.splice(1).forEach((answer) => answer(infoOf('c', 12)));
    await later;
    assert.equal(all.known('c').rev, 12);
    // One that is newer than what was known, but not than the hole.
    const newer = all.get('c');
    all.fallBehind();
    answers.at(-1)(infoOf('c', 13));
    await newer;
    page = [infoOf('c', 14, { title: 'renamed' })];
    const reading = all.refresh();
    all.apply(eventOf('reaction.changed', 'c', 16, { seq: 1, reactions: [] }));
    await reading;
    const asked = answers.length;
    await until(() => asked > 2 && answers.at(-1), 'asked for, as what is known is not whole', 1_000);
    answers.at(-1)(infoOf('c', 16, { title: 'renamed' }));
    await until(() => all.known('c').title === 'renamed', 'the new title', 1_000);
});

test('once the list was read again, a late answer is nothing but late', async () => {
    let asked = 0;
    const all = list({ getConversations: async () => ({ items: [infoOf('c', 9)], events_head: 'h' }), getConversation: async () => ((asked += 1), infoOf('c', 9)) });
    await all.refresh();
    all.fallBehind();
    await all.refresh();
    all.put(infoOf('c', 3));
    assert.deepEqual([asked, all.known('c').rev], [0, 9]);
});

test('one that a message moves from page to page while they are read stays on the list', async () => {
    let pages = [[infoOf('a', 9)], [infoOf('b', 8)]];
    let between = () => undefined;
    const getConversations = async ({ query: { cursor } }) => {
        const page = { items: pages[cursor === undefined ? 0 : 1], next_cursor: cursor === undefined ? '1' : null, events_head: 'h' };
        between();
        return page;
    };
    const all = list({ getConversations });
    await all.refresh();
    await all.more();
    assert.deepEqual(all.items.map((one) => one.id), ['a', 'b']);
    between = () => {
        between = () => undefined;
        all.apply(eventOf('message.created', 'b', 20, { message: { ...messageOf(20, 20), created_at: '2026-01-02T00:00:00Z' } }));
        pages = [[], [infoOf('a', 9)]];
    };
    await all.refresh();
    assert.deepEqual(all.items.map((one) => one.id), ['b', 'a']);
});

test('all pages that were read are read again, and what is gone from them is gone', async () => {
    const pages = { first: [infoOf('a', 9)], second: [infoOf('b', 8), infoOf('c', 7)] };
    const getConversations = async ({ query: { cursor } }) => ({ items: cursor ? pages.second : pages.first, next_cursor: cursor ? null : '1', events_head: 'h' });
    const all = list({ getConversations });
    await all.refresh();
    await all.more();
    all.fallBehind();
    pages.second = [infoOf('b', 8, { title: 'renamed' })];
    await all.refresh();
    assert.deepEqual(all.items.map((one) => one.title), ['t9', 'renamed']);
    assert.ok(!all.hasMore);
});

test('one from a page that was not read again comes back whole', async () => {
    const getConversation = async () => infoOf('b', 11, { title: 'renamed' });
    const all = list({ getConversations: async () => ({ items: [infoOf('a', 9)], next_cursor: '1', events_head: 'h' }), getConversation });
    await all.refresh();
    all.put(infoOf('b', 1), { listed: false });
    all.fallBehind();
    await all.refresh();
    all.apply(eventOf('reaction.changed', 'b', 11, { seq: 1, reactions: [] }));
    await until(() => all.known('b').title === 'renamed', 'the new title', 1_000);
});

test('what a server that lost something says now counts, however new what is known looks', async () => {
    let page = [infoOf('c', 9)];
    const all = list({ getConversations: async () => ({ items: page, events_head: 'h' }), getConversation: async () => page[0] });
    await all.refresh();
    page = [infoOf('c', 5)];
    await all.refresh();
    assert.equal(all.known('c').rev, 9, 'late');
    all.fallBehind();
    await all.refresh();
    assert.equal(all.known('c').rev, 5);
});

test('who stops waiting for a conversation is let go, and the others have their answer', async () => {
    let answer;
    const all = list({ getConversation: () => new Promise((resolve) => (answer = resolve)) });
    const stop = new AbortController();
    const [first, second] = [all.get('c', { signal: stop.signal }), all.get('c')];
    stop.abort(new Error('enough'));
    await assert.rejects(first, /enough/);
    answer(infoOf('c', 1));
    assert.equal((await second).rev, 1);
});
