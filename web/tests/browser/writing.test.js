// What one writes: pictures dropped and pasted, input methods, drafts, edits that fail.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { name, until } from '../harness.js';
import { by, say, shows, Stage, WAIT_MS } from './stage.js';

/** A picture of one red dot. */
const DOT = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC';

/** @type {Stage} */
let stage;
let people = [];
before(async () => (stage = await Stage.start()), { timeout: 120_000 });
after(() => stage?.stop());
afterEach(async () => {
    const all = people.splice(0);
    for (const person of all) await person.context.close();
    assert.deepEqual(all.flatMap((person) => person.faults), [], 'nothing is wrong in the console');
});

/** Bob with a page on a group of him and Ann. */
async function scene(options) {
    const [ann, bob] = [name('ann'), name('bob')];
    const { id } = await stage.api(ann, 'POST', '/v1/conversations', { kind: 'group', title: 'Lunch', members: [bob] });
    const person = await stage.person(bob, stage.front.http1, options);
    people.push(person);
    const page = await person.open(`/?c=${id}`);
    await by(page, 'composer').waitFor();
    return { ann, bob, id, person, page, where: `/v1/conversations/${id}` };
}

/** Drops or pastes files (and words) as a hand would; says whether the page kept the browser from acting itself. */
function hand(page, kind, { files = [], words = {}, at = '[data-testid=composer]' }) {
    return page.locator(at).evaluate((element, { kind, files, words, dot }) => {
        const data = new DataTransfer();
        for (const { name, type, size } of files) {
            const bytes = type === 'image/png' && !size ? Uint8Array.from(atob(dot), (one) => one.charCodeAt(0)) : new Uint8Array(size ?? 10);
            data.items.add(new File([bytes], name, { type }));
        }
        for (const [type, text] of Object.entries(words)) data.setData(type, text);
        const about = { bubbles: true, cancelable: true, composed: true };
        const event = kind === 'paste' ? new ClipboardEvent('paste', { ...about, clipboardData: data }) : new DragEvent(kind, { ...about, dataTransfer: data });
        return !element.dispatchEvent(event);
    }, { kind, files, words, dot: DOT });
}

const png = (name) => ({ name, type: 'image/png' });
const notices = (page) => by(page, 'notice').allInnerTexts();

test('pictures are dropped and pasted: into their places, others refused once, none opened in place of the page', { timeout: 60_000 }, async () => {
    const { page, ann, where } = await scene();
    await by(page, 'composer').fill('Here: ');
    await hand(page, 'dragenter', { files: [png('a.png')] });
    await page.locator('.drop-hint').waitFor();
    assert.equal(await hand(page, 'drop', { files: [png('a.png'), { name: 'a.pdf', type: 'application/pdf' }, { name: 'b.txt', type: 'text/plain' }, { name: 'c.svg', type: 'image/svg+xml' }] }), true);
    assert.equal(await page.locator('.drop-hint').isVisible(), false);
    assert.deepEqual(await notices(page), ['Pictures are PNG, JPEG, GIF or WebP.']);
    assert.equal(await hand(page, 'paste', { files: [png('b.png')] }), true);
    await until(async () => (await by(page, 'attachment').count()) === 2, 'two pictures', WAIT_MS);
    assert.equal((await by(page, 'composer').inputValue()).trim(), 'Here: [picture 1] [picture 2]');
    // A table from an office program: words, and a picture of them.
    assert.equal(await hand(page, 'paste', { files: [png('table.png')], words: { 'text/plain': 'a\tb', 'text/html': '<table></table>' } }), false);
    // Beside the messages the browser would open the file.
    for (const at of ['[data-testid=conversations]', '[data-testid=search]']) assert.equal(await hand(page, 'drop', { files: [png('c.png')], at }), true, at);
    assert.equal(await by(page, 'attachment').count(), 2);
    await hand(page, 'drop', { files: Array.from({ length: 12 }, (_, n) => png(`${n}.png`)) });
    assert.equal(await by(page, 'attachment').count(), 9);
    assert.equal((await notices(page)).filter((one) => one.includes('At most 9')).length, 1);
    for (let n = 0; n < 7; n += 1) await by(page, 'remove-picture').last().click();
    await by(page, 'composer').press('Enter');
    await until(async () => (await by(page, 'message').count()) === 1, 'it is sent', WAIT_MS);
    assert.equal(await by(page, 'picture').count(), 2);
    const { items } = await stage.api(ann, 'GET', `${where}/messages`);
    const [{ media, body }] = items;
    assert.equal(body.replace(/\s+/g, ' ').trim(), `Here: ![img:${media[0].id}] ![img:${media[1].id}]`);
});

test('a picture on its way: its buttons hold still, it can be stopped, and one that fails is told and tried again', { timeout: 60_000 }, async () => {
    const { page, person } = await scene();
    const cdp = await person.context.newCDPSession(page);
    await cdp.send('Network.enable');
    await cdp.send('Network.emulateNetworkConditions', { offline: false, latency: 5, downloadThroughput: -1, uploadThroughput: 150_000 });
    const stopped = page.waitForEvent('requestfailed', { predicate: (request) => request.url().endsWith('/v1/media'), timeout: WAIT_MS });
    await hand(page, 'drop', { files: [{ name: 'slow.png', type: 'image/png', size: 3_000_000 }] });
    const remove = by(page, 'remove-picture');
    await remove.focus();
    await remove.evaluate((button) => (window.held = button));
    await until(() => by(page, 'progress').evaluate((bar) => bar.value > 5), 'it is on its way', WAIT_MS);
    assert.equal(await page.evaluate(() => window.held.isConnected && document.activeElement === window.held), true, 'the button is the same and has the focus');
    await page.keyboard.press('Enter');
    await stopped;
    assert.equal(await by(page, 'attachment').count(), 0);
    assert.equal(await by(page, 'composer').evaluate((field) => document.activeElement === field), true, 'and gives it to the field');
    await cdp.send('Network.emulateNetworkConditions', { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: -1 });

    await person.context.route('**/v1/media', (route) => route.fulfill({ status: 413, body: '<html>' }));
    await hand(page, 'paste', { files: [png('a.png')] });
    await by(page, 'upload-again').waitFor();
    assert.deepEqual(await notices(page), ['That is too large.']);
    await by(page, 'composer').fill('look');
    await by(page, 'composer').press('Enter');
    assert.match(await page.locator('.count').innerText(), /not uploaded/);
    await person.context.unroute('**/v1/media');
    await by(page, 'upload-again').click();
    await page.locator('[data-testid=attachment]:not(.failed):not(.loading)').waitFor();
    assert.equal(await by(page, 'composer').inputValue(), 'look', 'it is not sent behind one\'s back');
    await by(page, 'composer').press('Enter');
    await by(page, 'picture').waitFor();
    await shows(page, ['look']);
});

test('while an input method composes, Enter, the arrows and Esc are its own', { timeout: 60_000 }, async () => {
    const { page, person } = await scene({ viewport: { width: 600, height: 720 } });
    const cdp = await person.context.newCDPSession(page);
    const composing = (field, key, more = {}) => by(page, field).evaluate((field, init) => field.dispatchEvent(new KeyboardEvent('keydown', { bubbles: true, cancelable: true, ...init })), { key, isComposing: true, keyCode: 229, ...more });
    await by(page, 'composer').focus();
    await cdp.send('Input.imeSetComposition', { text: '你好', selectionStart: 2, selectionEnd: 2 });
    assert.equal(await by(page, 'composer').inputValue(), '你好');
    for (const key of ['Enter', 'ArrowUp', 'Escape']) await composing('composer', key);
    // Safari ends composing before the key that does it.
    await composing('composer', 'Enter', { isComposing: false });
    assert.ok(page.url().includes('?c='), 'it is still open');
    assert.equal(await by(page, 'composer').inputValue(), '你好');
    await cdp.send('Input.insertText', { text: '你好' });
    assert.equal(await by(page, 'pending').count() + await by(page, 'message').count(), 0);
    await page.keyboard.press('Enter');
    await shows(page, ['你好']);
    await by(page, 'back').click();
    await by(page, 'search').fill('ni');
    for (const key of ['ArrowDown', 'Escape']) await composing('search', key);
    assert.deepEqual(await by(page, 'search').evaluate((field) => [field.value, document.activeElement === field]), ['ni', true]);
});

test('what was not sent stays: with its pictures, through another language, and for nobody else', { timeout: 60_000 }, async () => {
    const { page, ann, bob, id, person } = await scene();
    const other = await stage.api(ann, 'POST', '/v1/conversations', { kind: 'group', title: 'Other', members: [bob] });
    await by(page, 'composer').fill('before');
    await hand(page, 'paste', { files: [png('a.png')] });
    await page.locator('[data-testid=attachment]:not(.loading)').waitFor();
    const row = (one) => page.locator(`[data-testid=conversation][data-id="${one}"]`);
    await row(other.id).click();
    await page.locator(`[data-testid=chat][data-id="${other.id}"] [data-testid=composer]`).waitFor();
    assert.equal(await by(page, 'attachment').count(), 0);
    await row(id).click();
    await by(page, 'attachment').waitFor();
    await by(page, 'settings').click();
    await by(page, 'language').selectOption('zh');
    await by(page, 'attachment').waitFor();
    assert.equal((await by(page, 'composer').inputValue()).trim(), 'before [picture 1]');
    await by(page, 'composer').press('Enter');
    await by(page, 'picture').waitFor();
    await shows(page, ['before ']);

    // Somebody else at the same tab.
    const again = await stage.person(bob, stage.front.http1);
    people.push(again);
    const tab = await again.context.newPage();
    await tab.addInitScript('delete window.seqlineGetToken;');
    await tab.goto(`${stage.front.http1}/?c=${id}#token=${stage.world.token(bob)}`);
    await by(tab, 'composer').fill('only mine');
    await by(tab, 'settings').click();
    await by(tab, 'sign-out').click();
    await by(tab, 'token').fill(stage.world.token(ann));
    await by(tab, 'token').press('Enter');
    await by(tab, 'composer').waitFor();
    assert.equal(await by(tab, 'composer').inputValue(), '');
});

test('an edit that fails loses nothing; one that takes all pictures away is not sent', { timeout: 60_000 }, async () => {
    const { page, person, ann, where } = await scene();
    await say(page, 'first words');
    await shows(page, ['first words']);
    await person.context.route('**/messages/*', (route) => (route.request().method() === 'PATCH' ? route.fulfill({ status: 503, body: '' }) : route.continue()));
    await by(page, 'composer').press('ArrowUp');
    await say(page, 'better words');
    await by(page, 'notice').waitFor();
    assert.equal(await by(page, 'composer').inputValue(), 'better words');
    assert.match(await by(page, 'about').innerText(), /Edit/);
    await person.context.unroute('**/messages/*');
    await by(page, 'composer').press('Enter');
    await shows(page, ['better words']);
    assert.equal(await by(page, 'about').isVisible(), false);
    await hand(page, 'paste', { files: [png('a.png')] });
    await by(page, 'composer').press('Enter');
    await until(async () => (await by(page, 'message').count()) === 2 && (await by(page, 'pending').count()) === 0, 'it is sent', WAIT_MS);
    await by(page, 'composer').press('ArrowUp');
    await by(page, 'remove-picture').click();
    await by(page, 'composer').fill('without');
    assert.equal(await by(page, 'send').isDisabled(), true);
    await by(page, 'composer').press('Escape');
    const { items } = await stage.api(ann, 'GET', `${where}/messages`);
    assert.deepEqual(items.map((one) => one.media.length), [0, 1]);
});

test('leave to notify: who closes the question can be asked again, who says no is told where to change it', { timeout: 60_000 }, async () => {
    const { page, person } = await scene();
    await person.context.addInitScript(() => {
        const answers = ['default', 'denied'];
        let leave = 'default';
        Object.defineProperty(Notification, 'permission', { get: () => leave });
        Notification.requestPermission = async () => (leave = answers.shift() ?? leave);
    });
    await page.reload();
    await by(page, 'settings').click();
    await by(page, 'push').click();
    await by(page, 'notice').waitFor();
    assert.deepEqual(await notices(page), ['The browser was not given leave to show notifications.']);
    assert.equal(await by(page, 'push').isChecked(), false);
    await by(page, 'push').click();
    await by(page, 'push-denied').waitFor();
    assert.equal(await by(page, 'push-denied').evaluate((line) => document.activeElement === line), true);
});

test('what others write is read out once, together, and not what one wrote oneself or what is elsewhere', { timeout: 60_000 }, async () => {
    const { page, ann, bob, where } = await scene();
    const other = await stage.api(ann, 'POST', '/v1/conversations', { kind: 'group', title: 'Other', members: [bob] });
    await page.evaluate(() => {
        window.heard = [];
        new MutationObserver(([{ target }]) => window.heard.push(target.textContent)).observe(document.querySelector('[data-testid=spoken]'), { childList: true });
    });
    const write = (at, body) => stage.api(ann, 'POST', `${at}/messages`, { client_id: crypto.randomUUID(), body });
    await say(page, 'mine');
    await shows(page, ['mine']);
    await write(`/v1/conversations/${other.id}`, 'elsewhere');
    await write(where, 'Soup?');
    const heard = () => page.evaluate(() => window.heard);
    await until(async () => (await heard()).length === 1, 'it is read out', WAIT_MS);
    // Together or one by one, as they come; each once.
    for (const body of ['One', 'Two', 'Three']) await write(where, body);
    const said = async () => (await heard()).slice(1).reduce((sum, words) => sum + Number(/^(\d+) new/.exec(words)?.[1] ?? 1), 0);
    await until(async () => (await said()) >= 3, 'the others too', WAIT_MS);
    assert.equal(await said(), 3);
    assert.match((await heard())[0], /ann.*Soup\?/);
    assert.doesNotMatch((await heard()).join(), /mine|elsewhere/);
});

test('a notification that is clicked opens its conversation in the page that is there; signing out takes all of them away', { timeout: 60_000 }, async () => {
    const { page, ann, bob, person } = await scene();
    const other = await stage.api(ann, 'POST', '/v1/conversations', { kind: 'group', title: 'Other', members: [bob] });
    const answered = await page.evaluate((conversation_id) => new Promise((resolve) => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = ({ data }) => resolve(data);
        navigator.serviceWorker.dispatchEvent(new MessageEvent('message', { data: { type: 'seqline:open', conversation_id }, ports: [port2] }));
    }), other.id);
    assert.equal(answered, true, 'or the worker would load the page anew');
    await page.locator(`[data-testid=chat][data-id="${other.id}"] [data-testid=composer]`).waitFor();

    const tab = await person.context.newPage();
    await tab.addInitScript('delete window.seqlineGetToken;');
    await tab.goto(`${stage.front.http1}/#token=${stage.world.token(bob)}`);
    await by(tab, 'settings').waitFor();
    await person.context.grantPermissions(['notifications']);
    const shown = () => tab.evaluate(async () => (await (await navigator.serviceWorker.ready).getNotifications()).length);
    await tab.evaluate(async () => {
        await navigator.serviceWorker.register('/sw.js', { type: 'module' });
        await (await navigator.serviceWorker.ready).showNotification('Ann', { body: 'hello', data: { conversation_id: 'x', seq: 1 }, requireInteraction: true });
    });
    await until(async () => (await shown()) === 1, 'it is shown', WAIT_MS);
    await by(tab, 'settings').click();
    await by(tab, 'sign-out').click();
    await by(tab, 'token').waitFor();
    await until(async () => (await shown()) === 0, 'it is gone', WAIT_MS);
});
