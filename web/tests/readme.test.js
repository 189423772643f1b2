// The example of the README, as it stands there.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { World } from './harness.js';

test('the example of the README runs', async (t) => {
    const world = await World.start();
    t.after(() => world.stop());
    const text = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
    const [, code] = /## In a browser or in Node[\s\S]*?```js\n([\s\S]*?)```/.exec(text);
    const lines = [];
    const body = code.replace(/^import \{ (\w+) \} from .*$/m, '').replaceAll('console.log', 'say');
    const { connect } = await import('../seqline.js');
    const run = new Function('connect', 'baseUrl', 'token', 'say', `return (async () => {${body}})();`);
    await run(connect, world.urls[0], world.token('ann'), (...words) => lines.push(words.join(' ')));
    assert.ok(lines.some((line) => line.startsWith('live')), lines.join('\n'));
    assert.ok(lines.includes('pending Hello Bob') && lines.includes('message Hello Bob'), lines.join('\n'));
});
