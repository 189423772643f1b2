// Two people in real browsers, behind nginx, while things go wrong.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, afterEach, before, test } from 'node:test';
import { HostileProxy, name, until } from '../harness.js';
import { bodies, by, say, shows, Stage, WAIT_MS } from './stage.js';

/** A picture of one red dot. */
const DOT = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC', 'base64');

/** @type {Stage} */
let stage;
let people = [];
before(async () => (stage = await Stage.start({ SEQLINE_LOG_MAX_ENTRIES: '150' })), { timeout: 120_000 });
after(() => stage?.stop());
afterEach(async () => {
    const all = people.splice(0);
    for (const person of all) await person.context.close();
    assert.deepEqual(all.flatMap((person) => person.faults), [], 'nothing is wrong in the console');
});

/** Ann and Bob in a group, each in their own browser. */
async function pair(base, { base: baseOfBob = base, ...more } = {}) {
    const [ann, bob] = [name('ann'), name('bob')];
    const { id } = await stage.api(ann, 'POST', '/v1/conversations', { kind: 'group', title: 'Lunch', members: [bob] });
    const a = await stage.person(ann, base);
    const b = await stage.person(bob, baseOfBob, more);
    people.push(a, b);
    const [at, bt] = [await a.open(`/?c=${id}`), await b.open(`/?c=${id}`)];
    return { id, ann, bob, a, b, at, bt, where: `/v1/conversations/${id}` };
}

for (const [how, base] of [['HTTP/1.1', () => stage.front.http1], ['HTTP/2', () => stage.front.http2]]) {
    test(`two people talk over ${how}`, { timeout: 120_000 }, async () => {
        const { at, bt } = await pair(base());
        await say(at, 'Soup or salad?');
        await shows(bt, ['Soup or salad?']);
        await by(at, 'receipt').filter({ hasText: /read/i }).waitFor();
        await by(bt, 'composer').pressSequentially('Sou');
        await at.locator('[data-testid=typing].typing').waitFor();
        await by(bt, 'composer').fill('');
        await say(bt, 'Soup 🍜\nplease');
        await shows(at, ['Soup or salad?', 'Soup 🍜\nplease']);
        await bt.locator('[data-testid=message]').first().hover();
        await bt.locator('[data-testid=message]').first().getByTestId('react').click();
        await by(bt, 'emoji-👍').first().click();
        await by(at, 'reaction').first().waitFor();
        await by(at, 'composer').press('ArrowUp');
        await say(at, 'Soup or nothing?');
        await shows(bt, ['Soup or nothing?', 'Soup 🍜\nplease']);
        const first = by(bt, 'message').first();
        await first.hover();
        await first.getByTestId('reply').click();
        await say(bt, 'Then soup');
        await by(at, 'quote').filter({ hasText: 'Soup or nothing?' }).waitFor();
        const last = by(bt, 'message').last();
        await last.hover();
        await last.getByTestId('more').click();
        await by(bt, 'menu-recall').click();
        await by(bt, 'confirm').click();
        await until(async () => !(await by(at, 'timeline').innerText()).includes('Then soup'), 'it is taken back', WAIT_MS);
        await by(at, 'files').setInputFiles({ name: 'dot.png', mimeType: 'image/png', buffer: DOT });
        await by(at, 'attachment').first().waitFor();
        await by(at, 'composer').press('Enter');
        const picture = by(bt, 'picture').first();
        await picture.waitFor();
        await until(() => picture.evaluate((image) => image.complete && image.naturalWidth === 1), 'the picture is drawn', WAIT_MS);
        if (how === 'HTTP/2') {
            assert.equal(await at.evaluate(() => performance.getEntriesByType('navigation')[0].nextHopProtocol), 'h2');
        }
    });
}

test('the network is cut and comes back: everything once, in order', { timeout: 120_000 }, async () => {
    const { at, bt, ann, where } = await pair(stage.front.http1);
    await say(at, 'before');
    await shows(bt, ['before']);
    await stage.front.cut();
    for (const n of [1, 2, 3]) await stage.api(ann, 'POST', `${where}/messages`, { client_id: name('k'), body: `meanwhile ${n}` });
    await say(bt, 'written without a network');
    await by(bt, 'pending').first().waitFor();
    await stage.front.restore();
    const all = ['before', 'meanwhile 1', 'meanwhile 2', 'meanwhile 3', 'written without a network'];
    await shows(bt, all);
    await shows(at, all);
    assert.equal((await bodies(bt)).length, 5);
});

test('504 from nginx, tried again, a reload, tried again: one message', { timeout: 120_000 }, async () => {
    const ways = [await HostileProxy.start(stage.gateways[0].url), await HostileProxy.start(stage.gateways[1].url)];
    const front = await stage.another(ways.map((way) => ({ port: new URL(way.url).port })), { readWithin: '1s' });
    try {
        const { at, bt } = await pair(stage.front.http1, { base: front.http1 });
        const sent = () => ways.flatMap((way) => way.seen('POST', /\/messages$/));
        const statuses = [];
        bt.on('response', (answer) => answer.request().method() === 'POST' && answer.url().endsWith('/messages') && statuses.push(answer.status()));
        // What becomes of a send; no stream says what did.
        const letSends = (fate) => {
            for (const way of ways) {
                way.rule = ({ method, path }) => (path.startsWith('/v1/events') ? { status: 503 } : method === 'POST' && path.endsWith('/messages') ? fate : null);
            }
        };
        const times = (count) => until(() => statuses.filter((status) => status === 504).length >= count, `504 for the ${count}. time`, WAIT_MS);
        letSends('hang');
        for (const way of ways) way.cutAll();
        await say(bt, 'said once');
        await times(1);
        // Both gateways are out of order for nginx now and then, for the page as well.
        await until(async () => (await bt.reload()).ok(), 'the page is there again', WAIT_MS);
        await times(2);
        // From now on a gateway does it, but nginx never hears of it.
        letSends({ after: 'hang' });
        await shows(at, ['said once']);
        for (const way of ways) way.rule = () => null;
        await shows(bt, ['said once']);
        await until(async () => (await by(bt, 'pending').count()) === 0, 'it is confirmed', WAIT_MS);
        await say(bt, 'the end');
        for (const page of [at, bt]) await shows(page, ['said once', 'the end']);
        const keys = new Set(sent().filter(({ body }) => body.includes('said once')).map(({ body }) => JSON.parse(body).client_id));
        assert.deepEqual([keys.size, (await bodies(at)).length, (await bodies(bt)).length], [1, 2, 2]);
    } finally {
        await front.cut();
        for (const way of ways) await way.stop();
    }
});

test('messages that could not be loaded come by themselves', { timeout: 120_000 }, async () => {
    const { at, bt, b } = await pair(stage.front.http1);
    await say(at, 'there all the time');
    let refused = 0;
    await b.context.route(/\/messages\?/, (route) => (refused < 2 ? ((refused += 1), route.fulfill({ status: 502, body: '<html>' })) : route.continue()));
    await bt.reload();
    await by(bt, 'fault').waitFor();
    await shows(bt, ['there all the time']);
    assert.equal(refused, 2);
});

test('a hidden tab marks nothing read; looked at again, it does', { timeout: 120_000 }, async () => {
    const { at, bt, bob, where } = await pair(stage.front.http1);
    const read = async () => (await stage.api(bob, 'GET', where)).me.read_seq;
    await say(at, 'seen');
    await shows(bt, ['seen']);
    await until(async () => (await read()) === 1, 'it is read', WAIT_MS);
    const turn = (state) => bt.evaluate((state) => {
        Object.defineProperty(document, 'visibilityState', { get: () => state, configurable: true });
        Object.defineProperty(document, 'hidden', { get: () => state === 'hidden', configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    }, state);
    await turn('hidden');
    const posts = [];
    bt.on('request', (request) => request.url().endsWith('/read') && posts.push(request.url()));
    for (const n of [1, 2, 3]) await say(at, `unseen ${n}`);
    await shows(bt, ['unseen 1', 'unseen 2', 'unseen 3']);
    await say(at, 'unseen 4');
    await shows(bt, ['unseen 4']);
    assert.deepEqual([posts, await read()], [[], 1]);
    await turn('visible');
    await until(async () => (await read()) === 5, 'they are read', WAIT_MS);
});

test('seven tabs have one stream, and go on when the first is closed', { timeout: 120_000 }, async () => {
    const { at, bt: early, b, id } = await pair(stage.front.http1);
    // A first tab whose requests are counted from the beginning.
    await early.close();
    const open = new Set();
    const streams = (page) => {
        page.on('request', (request) => /\/v1\/events(\?|$)/.test(request.url()) && open.add(request));
        for (const end of ['requestfinished', 'requestfailed']) page.on(end, (request) => open.delete(request));
        // What a tab had open ends with it, without a further word.
        page.on('close', () => [...open].filter((request) => request.frame().page() === page).forEach((request) => open.delete(request)));
    };
    b.context.on('page', streams);
    const bt = await b.open(`/?c=${id}`);
    const tabs = [];
    for (let n = 0; n < 6; n += 1) tabs.push(await b.open(`/?c=${id}`));
    await until(() => open.size === 1, 'one stream for all', WAIT_MS);
    await say(at, 'to all');
    for (const tab of [bt, ...tabs]) await shows(tab, ['to all']);
    await bt.close();
    await say(at, 'to those who are left');
    for (const tab of tabs) await shows(tab, ['to those who are left']);
    assert.equal(open.size, 1, 'one stream');
});

test('asleep for longer than the log keeps: all can be scrolled to, in order', { timeout: 150_000 }, async () => {
    const { bt, ann, where } = await pair(stage.front.http1);
    await stage.api(ann, 'POST', `${where}/messages`, { client_id: name('k'), body: 'm 1' });
    await shows(bt, ['m 1']);
    await stage.front.cut();
    for (let n = 2; n <= 300; n += 1) await stage.api(ann, 'POST', `${where}/messages`, { client_id: name('k'), body: `m ${n}` });
    await stage.front.restore();
    const seen = new Set();
    const look = async () => {
        const seqs = await by(bt, 'timeline').locator('[data-testid=message]').evaluateAll((all) => all.map((one) => Number(one.dataset.seq)));
        assert.deepEqual(seqs, [...new Set(seqs)].sort((a, b) => a - b), 'in order, none doubled');
        seqs.forEach((seq) => seen.add(seq));
        return seqs;
    };
    const roll = (end) => by(bt, 'timeline').evaluate((timeline, end) => (timeline.scrollTop = end === 'top' ? 0 : timeline.scrollHeight), end);
    for (const end of ['bottom', 'top', 'bottom']) {
        await until(async () => {
            await roll(end);
            const seqs = await look();
            return end === 'top' ? seqs[0] === 1 : seqs.at(-1) === 300;
        }, `scrolled to the ${end}`, WAIT_MS);
    }
    assert.equal(seen.size, 300);
});

test('older messages come in and the one in view stays where it is', { timeout: 120_000 }, async () => {
    const { bt, b, ann, where } = await pair(stage.front.http1);
    const bytes = await readFile(new URL('../../../deploy/screenshots/phone-dark.png', import.meta.url));
    const headers = { Authorization: `Bearer ${stage.world.token(ann)}`, 'Content-Type': 'image/png' };
    const upload = async () => (await (await fetch(`${stage.gateways[0].url}/v1/media`, { method: 'POST', headers, body: bytes })).json()).id;
    for (let n = 1; n <= 160; n += 1) {
        const shown = n % 5 === 0 ? { kind: 'image', media: [await upload()] } : {};
        await stage.api(ann, 'POST', `${where}/messages`, { client_id: name('k'), body: `m ${n}\n`.repeat((n % 4) + 1).trim(), ...shown });
    }
    // Pictures come when one has scrolled on.
    let pictures = 0;
    await b.context.route(/\/media\//, async (route) => {
        pictures += 1;
        await new Promise((resolve) => setTimeout(resolve, 150));
        await route.continue();
    });
    await bt.reload();
    await until(async () => (await bodies(bt)).length > 20, 'the newest are there', WAIT_MS);
    const moved = await by(bt, 'timeline').evaluate(async (timeline) => {
        const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
        let most = 0;
        for (let n = 0; n < 400; n += 1) {
            timeline.scrollTop = Math.max(40, timeline.scrollTop - 60);
            await frame();
            const top = timeline.getBoundingClientRect().top;
            const all = [...timeline.querySelectorAll('[data-testid=message]')];
            const held = all.find((one) => one.getBoundingClientRect().top >= top);
            if (!held) continue;
            const before = held.getBoundingClientRect().top;
            await frame();
            if (held.isConnected) most = Math.max(most, Math.abs(held.getBoundingClientRect().top - before));
            if (all[0].dataset.seq === '1') return { most, seq: 1 };
        }
        return { most, seq: -1 };
    });
    assert.ok(moved.most <= 1 && moved.seq === 1, JSON.stringify(moved));
    assert.ok(pictures >= 5, `${pictures} pictures`);
});

test('a token that ends, and a restart of both gateways, one after the other: nobody notices', { timeout: 150_000 }, async () => {
    // A gateway takes a token for half a minute longer than it lives: this one for ten seconds.
    const tokens = [];
    const { at, bt, ann, where } = await pair(stage.front.http1, { ttls: [-20, 3600], tokens });
    const said = [];
    let more = true;
    const talk = (async () => {
        while (more) {
            const body = `m ${said.length + 1}`;
            const key = name('k');
            // As a client does: the same key until it is answered.
            await until(() => stage.api(ann, 'POST', `${where}/messages`, { client_id: key, body }).catch(() => null), `${body} is taken`, WAIT_MS);
            said.push(body);
            await new Promise((resolve) => setTimeout(resolve, 150));
        }
    })();
    await stage.restart(1);
    await stage.restart(0);
    await until(() => said.length >= 60, 'the first token has ended', WAIT_MS);
    more = false;
    await talk;
    await say(bt, 'all well');
    await shows(at, [...said, 'all well']);
    await shows(bt, [...said, 'all well']);
    assert.ok(tokens.length >= 2, 'the token was renewed');
});

test('one column on a phone, Chinese words, and only a keyboard', { timeout: 120_000 }, async () => {
    const [ann, bob] = [name('ann'), name('bob')];
    const { id } = await stage.api(ann, 'POST', '/v1/conversations', { kind: 'group', title: '午饭', members: [bob] });
    const phone = await stage.person(bob, stage.front.http1, { locale: 'zh-CN', viewport: { width: 390, height: 800 } });
    people.push(phone);
    const page = await phone.open('/');
    assert.equal(await page.locator('html').getAttribute('lang').then((lang) => lang?.slice(0, 2)), 'zh');
    await by(page, 'conversation').first().focus();
    await page.keyboard.press('Enter');
    await by(page, 'composer').waitFor();
    assert.equal(await by(page, 'conversations').isVisible(), false, 'one column');
    assert.ok(page.url().includes(encodeURIComponent(id)) || page.url().includes(id));
    await by(page, 'composer').focus();
    await page.keyboard.type('好的');
    await page.keyboard.press('Enter');
    await shows(page, ['好的']);
    await page.goBack();
    await by(page, 'conversations').waitFor();
});
