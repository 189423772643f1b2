// What the browser tests stand on: two gateways of their own processes behind a real nginx, over HTTP/1.1 and over HTTP/2, and people with a
// Chromium each.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { freePort, until, World } from '../harness.js';

const CHROMIUM = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((file) => file && existsSync(file));
const NGINX = ['/usr/sbin/nginx', '/usr/local/sbin/nginx', '/usr/bin/nginx'].find((file) => existsSync(file));
const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
export const WAIT_MS = 30_000;

/** nginx with the configuration that `deploy` hands out, on ports of a test's own. */
class Front {
    /** `readWithin`: after what time without an answer it gives one of its own. */
    static async start(folder, gateways, { readWithin = '40s' } = {}) {
        const front = new Front();
        front.folder = await mkdtemp(path.join(folder, 'nginx-'));
        [front.plain, front.secure] = [await freePort(), await freePort()];
        execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=localhost',
            '-keyout', `${front.folder}/key.pem`, '-out', `${front.folder}/cert.pem`], { stdio: 'ignore' });
        let text = await readFile(new URL('../../../deploy/nginx.conf', import.meta.url), 'utf8');
        const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((kind) => `${kind}_temp_path ${front.folder}/${kind};`).join('\n');
        const tls = `ssl_certificate ${front.folder}/cert.pem; ssl_certificate_key ${front.folder}/key.pem;`;
        for (const [theirs, ours] of [
            ['gateway-1:8080', `127.0.0.1:${gateways[0].port}`],
            ['gateway-2:8080', `127.0.0.1:${gateways[1].port}`],
            ['listen 8080;', `listen 127.0.0.1:${front.plain}; listen 127.0.0.1:${front.secure} ssl http2; ${tls}`],
            ['/dev/stdout plain', `${front.folder}/access.log plain`],
            ['worker_processes auto;', `worker_processes 1; daemon off; pid ${front.folder}/pid;`],
            ['worker_rlimit_nofile 65536;', ''],
            ['worker_connections 16384;', 'worker_connections 512;'],
            ['proxy_read_timeout 40s;', `proxy_read_timeout ${readWithin};`],
            ['http {\n', `http {\n${temporary}\n`],
        ]) {
            assert.ok(text.includes(theirs), `deploy/nginx.conf no longer says ${theirs}`);
            text = text.replace(theirs, ours);
        }
        front.config = path.join(front.folder, 'nginx.conf');
        await writeFile(front.config, text);
        await front.restore();
        return front;
    }

    get http1() {
        return `http://127.0.0.1:${this.plain}`;
    }

    get http2() {
        return `https://127.0.0.1:${this.secure}`;
    }

    /** Takes connections again. */
    async restore() {
        this.child = spawn(NGINX, ['-c', this.config], { stdio: 'ignore' });
        this.ended = new Promise((resolve) => this.child.once('exit', resolve));
        await until(() => fetch(`${this.http1}/openapi.json`).then((answer) => answer.ok, () => false), 'nginx listens', WAIT_MS);
    }

    /** Cuts every connection, and takes no new one. */
    async cut() {
        this.child.kill('SIGTERM');
        await this.ended;
    }
}

/** The whole: stores, two gateways, nginx, a browser. */
export class Stage {
    static async start(env = {}) {
        assert.ok(CHROMIUM, 'no Chromium here: deploy/install-packages.sh --for-tests installs it');
        const stage = new Stage();
        stage.world = await World.start({ env });
        stage.gateways = [await stage.world.gateway({ env }), await stage.world.gateway({ env })];
        stage.env = env;
        stage.front = await Front.start(stage.world.folder, stage.gateways);
        stage.browser = await chromium.launch({ executablePath: CHROMIUM, headless: true, args: ARGS });
        return stage;
    }

    async stop() {
        await this.browser?.close();
        await this.front?.cut();
        await this.world?.stop();
    }

    /** Another nginx, before what stands at these ports; to be cut by who asked for it. */
    another(upstreams, options) {
        return Front.start(this.world.folder, upstreams, options);
    }

    /** Stops a gateway as a rolling restart does, and starts it again at its address. */
    async restart(number) {
        const { port, stop } = this.gateways[number];
        await stop('SIGTERM');
        this.gateways[number] = await this.world.gateway({ port, env: this.env });
    }

    /** One request of a user, past the page. */
    async api(user, method, where, body) {
        const headers = { Authorization: `Bearer ${this.world.token(user)}`, ...(body && { 'Content-Type': 'application/json' }) };
        const answer = await fetch(this.gateways[0].url + where, { method, headers, body: body && JSON.stringify(body) });
        const text = await answer.text();
        assert.ok(answer.ok, `${method} ${where}: ${answer.status} ${text}`);
        return text && JSON.parse(text);
    }

    /** A person with a browser profile of their own. `ttls`: how long each token lives, in seconds, the last for all later ones; `tokens` gets all that were given. */
    async person(user, base, { ttls = [3600], tokens = [], ...options } = {}) {
        const context = await this.browser.newContext({ ignoreHTTPSErrors: true, locale: 'en-GB', viewport: { width: 1100, height: 720 }, ...options });
        const faults = [];
        await context.exposeFunction('tokenOfTheHost', () => {
            const token = this.world.token(user, { ttl: ttls.length > 1 ? ttls.shift() : ttls[0] });
            tokens.push(token);
            return token;
        });
        await context.addInitScript('window.seqlineGetToken = () => window.tokenOfTheHost();');
        const person = { user, context, faults, base };
        person.open = async (where = '/') => {
            const page = await context.newPage();
            page.setDefaultTimeout(WAIT_MS);
            page.on('pageerror', (error) => faults.push(String(error)));
            page.on('console', (line) => {
                // That a request fails while the network is cut is what these tests are about.
                if (line.type() === 'error' && !/Failed to load resource|net::ERR/.test(line.text())) faults.push(line.text());
            });
            await page.goto(base + where);
            await page.locator('[data-testid=connection][data-phase=live]').waitFor({ state: 'attached' });
            return page;
        };
        return person;
    }
}

export const by = (page, id) => page.getByTestId(id);

/** Bodies that are in the page, in order. */
export const bodies = (page) => by(page, 'timeline').locator('[data-testid=message] [data-testid=body]').allInnerTexts();

/** Waits until the page shows exactly these at its end. */
export async function shows(page, expected) {
    let seen = [];
    await until(async () => {
        seen = (await bodies(page)).slice(-expected.length);
        return JSON.stringify(seen) === JSON.stringify(expected);
    }, `shown: ${JSON.stringify(expected)}`, WAIT_MS).catch((error) => assert.deepEqual(seen, expected, error.message));
}

/** Writes and sends. */
export async function say(page, text) {
    await by(page, 'composer').fill(text);
    await by(page, 'composer').press('Enter');
}
