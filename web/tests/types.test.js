// The types that are shipped are the ones that the sources have.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { makeTypes } from './make_types.js';

const WEB = new URL('../', import.meta.url);

test('seqline.d.ts is fresh', () => {
    assert.ok(readFileSync(new URL('seqline.d.ts', WEB), 'utf8') === makeTypes(), 'seqline.d.ts is stale; run: npm run types');
});

test('every file of the module says first what it is, and is not long', () => {
    for (const file of readdirSync(new URL('client/', WEB))) {
        const lines = readFileSync(new URL(`client/${file}`, WEB), 'utf8').split('\n');
        assert.match(lines[0], /^\/\/ .{10}/, file);
        assert.ok(lines.length <= 500, `${file} has ${lines.length} lines`);
    }
});

test('the lock file names no host', () => {
    assert.ok(!readFileSync(new URL('package-lock.json', WEB), 'utf8').includes('"resolved"'));
});
