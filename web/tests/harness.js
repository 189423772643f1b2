// Real gateways for tests: `seqline dev` with two gateways, a Redis and a Postgres of its own, further gateways that can be killed, and
// a proxy in between that misbehaves on demand. Browser tests use it too.
import { spawn } from 'node:child_process';
import { createHmac, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const START_WITHIN_MS = 60_000;

/** The program under test. */
export const BINARY = process.env.SEQLINE_BIN ?? path.resolve(HERE, '../../target/debug/seqline');

/** Waits until `look` gives something true; fails with `what` after `withinMs`. */
export async function until(look, what, withinMs = 10_000) {
    const end = Date.now() + withinMs;
    for (;;) {
        const found = await look();
        if (found) return found;
        if (Date.now() > end) throw new Error(`not within ${withinMs} ms: ${what}`);
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
}

/** A free port on loopback such that `more` ports after it are most likely free as well. */
export async function freePort() {
    const server = net.createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address();
    await new Promise((resolve) => server.close(resolve));
    return port;
}

const base64url = (value) => Buffer.from(value).toString('base64url');

/** A token as a host application would make it. `ttl` in seconds, may be negative. */
export function signToken(secret, claims, ttl = 3600) {
    const now = Math.floor(Date.now() / 1000);
    const body = `${base64url(JSON.stringify({ alg: 'HS256', typ: 'JWT' }))}.${base64url(JSON.stringify({ iat: now, exp: now + ttl, ...claims }))}`;
    return `${body}.${createHmac('sha256', secret).update(body).digest('base64url')}`;
}

class Program {
    constructor(words, env) {
        this.text = { out: '', err: '' };
        this.child = spawn(BINARY, words, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
        this.child.stdout.on('data', (bytes) => (this.text.out += bytes));
        this.child.stderr.on('data', (bytes) => (this.text.err = (this.text.err + bytes).slice(-20_000)));
        this.ended = new Promise((resolve) => this.child.once('exit', resolve));
        this.over = false;
        void this.ended.then(() => (this.over = true));
    }

    async stop(signal = 'SIGTERM') {
        if (!this.over) this.child.kill(signal);
        await this.ended;
    }
}

/** A whole system. */
export class World {
    static async start({ env = {} } = {}) {
        if (!existsSync(BINARY)) throw new Error(`${BINARY} is not built; run cargo build, or set SEQLINE_BIN`);
        const world = new World();
        world.folder = await mkdtemp(path.join(tmpdir(), 'seqline-web-'));
        world.env = { SEQLINE_HEARTBEAT_MS: '1000', SEQLINE_LOG: 'error', ...env };
        world.programs = [];
        world.port = 20_000 + Math.floor(Math.random() * 10_000);
        world.main = new Program(['dev', '--data', world.folder, '--port', String(world.port)], world.env);
        world.programs.push(world.main);
        await until(() => {
            if (world.main.over) throw new Error(`seqline dev ended:\n${world.main.text.err}`);
            return world.main.text.out.includes('Their history');
        }, 'seqline dev starts', START_WITHIN_MS);
        const line = /API\s+(http:\S+)\s+(http:\S+)/.exec(world.main.text.out);
        world.urls = [line[1], line[2]];
        world.secret = (await readFile(path.join(world.folder, 'jwt-secret'), 'utf8')).trim();
        // Everything a send needs has been used once: on a busy machine the first use may be told to come again.
        for (const url of world.urls) {
            const [here, body] = [world.token(name('first')), JSON.stringify({ kind: 'group', members: [name('second')] })];
            const headers = { Authorization: `Bearer ${here}`, 'Content-Type': 'application/json' };
            await until(async () => (await fetch(`${url}/v1/conversations`, { method: 'POST', headers, body })).ok, 'a first conversation', START_WITHIN_MS);
        }
        return world;
    }

    token(user, { ttl = 3600, ...claims } = {}) {
        return signToken(this.secret, { sub: user, ...claims }, ttl);
    }

    /** A gateway of its own process on the same stores: to be killed, drained and started again at the same address. */
    async gateway({ env = {}, port } = {}) {
        const [api, admin] = [port ?? (await freePort()), await freePort()];
        const [redis, postgres] = await this.stores();
        const program = new Program(['serve'], {
            ...this.env, SEQLINE_LISTEN: `127.0.0.1:${api}`, SEQLINE_ADMIN_LISTEN: `127.0.0.1:${admin}`, SEQLINE_REDIS_URL: redis, SEQLINE_DATABASE_URL: postgres,
            SEQLINE_JWT_HS256_SECRETS: this.secret, SEQLINE_MEDIA_URL: `file://${this.folder}/media`, ...env,
        });
        this.programs.push(program);
        const url = `http://127.0.0.1:${api}`;
        await until(async () => {
            if (program.over) throw new Error(`seqline serve ended:\n${program.text.err}${program.text.out}`);
            return (await fetch(`http://127.0.0.1:${admin}/readyz`).catch(() => null))?.ok;
        }, 'a gateway is ready', START_WITHIN_MS);
        return { url, port: api, stop: (signal) => program.stop(signal) };
    }

    /** URLs of the Redis and the Postgres. */
    async stores() {
        return [await this.#redis(), await this.#postgres()];
    }

    async #redis() {
        const text = await readFile(path.join(this.folder, 'redis', 'redis.conf'), 'utf8').catch(() => '');
        const port = /^port (\d+)/m.exec(text)?.[1] ?? String(this.port + 20);
        const password = /^requirepass "?([^"\s]+)/m.exec(text)?.[1];
        return `redis://${password ? `:${password}@` : ''}127.0.0.1:${port}`;
    }

    async #postgres() {
        const pid = await readFile(path.join(this.folder, 'postgres', 'cluster', 'postmaster.pid'), 'utf8');
        const port = pid.split('\n')[3];
        const password = (await readFile(path.join(this.folder, 'postgres', 'password'), 'utf8').catch(() => '')).trim();
        return `postgres://postgres:${password}@127.0.0.1:${port}/postgres?sslmode=disable`;
    }

    /** One command to the Redis, as `redis-cli` would send it. */
    async redis(...words) {
        const url = new URL(await this.#redis());
        const encode = (list) => `*${list.length}\r\n${list.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('')}`;
        const socket = net.connect(Number(url.port), '127.0.0.1');
        let text = '';
        socket.on('data', (bytes) => (text += bytes));
        if (url.password) socket.write(encode(['AUTH', url.password]));
        socket.write(encode(words) + encode(['PING']));
        await until(() => text.includes('+PONG'), 'Redis answers');
        socket.destroy();
        return text;
    }

    /** Makes the log of a user go, as a Redis that lost it would. */
    async loseLog(user) {
        const found = await this.redis('KEYS', '*');
        const keys = found.split('\r\n').filter((word) => /log/.test(word) && word.includes(user));
        if (keys.length === 0) throw new Error('there is no log of that user');
        for (const key of keys) await this.redis('DEL', key);
        return keys;
    }

    async stop() {
        for (const program of this.programs.slice(1)) await program.stop('SIGKILL');
        await this.main.stop();
        await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
    }
}

/**
 * A proxy between client and gateway that does as it is told. Each request is shown to `rule`, which may say
 * 'cut' (at once), 'hang', { status, headers?, body? } (instead of asking), { after: status, 'cut' or 'hang' } (asks, then answers that), { delayMs }.
 * `trickle` passes answers on byte by byte; `cutAll` breaks everything that is open; `down` refuses connections.
 */
export class HostileProxy {
    static async start(target) {
        const proxy = new HostileProxy();
        proxy.target = new URL(target);
        proxy.rule = () => null;
        proxy.trickle = false;
        proxy.silent = false;
        proxy.down = false;
        proxy.log = [];
        proxy.sockets = new Set();
        proxy.server = http.createServer((request, response) => void proxy.#handle(request, response));
        proxy.server.on('connection', (socket) => {
            if (proxy.down) return socket.destroy();
            socket.setNoDelay(true);
            proxy.sockets.add(socket);
            socket.on('close', () => proxy.sockets.delete(socket));
            socket.on('error', () => undefined);
        });
        proxy.server.listen(0, '127.0.0.1');
        await new Promise((resolve) => proxy.server.once('listening', resolve));
        proxy.url = `http://127.0.0.1:${proxy.server.address().port}`;
        return proxy;
    }

    /** Requests seen, newest last: { method, path, headers, body }. */
    seen(method, pattern) {
        return this.log.filter((one) => one.method === method && pattern.test(one.path));
    }

    /** Streams open through it. */
    get streams() {
        return this.log.filter((one) => one.path.startsWith('/v1/events') && !one.path.startsWith('/v1/events/') && one.open).length;
    }

    cutAll() {
        for (const socket of this.sockets) socket.destroy();
    }

    async #handle(request, response) {
        const chunks = [];
        for await (const chunk of request.on('error', () => undefined)) chunks.push(chunk);
        const body = Buffer.concat(chunks);
        const entry = { method: request.method, path: request.url, headers: request.headers, body: body.toString(), open: true };
        this.log.push(entry);
        response.on('close', () => (entry.open = false));
        const what = this.rule(entry) ?? {};
        if (what === 'cut') return request.socket.destroy();
        if (what === 'hang') return undefined;
        if (what.status) return response.writeHead(what.status, what.headers).end(what.body ?? '');
        if (what.delayMs) await new Promise((resolve) => setTimeout(resolve, what.delayMs));
        const { hostname, port } = this.target;
        const onward = http.request({ hostname, port, method: request.method, path: request.url, headers: { ...request.headers, host: `${hostname}:${port}` } });
        response.on('close', () => onward.destroy());
        onward.on('error', () => response.destroy());
        onward.on('response', async (answer) => {
            answer.on('error', () => response.destroy());
            if (what.after) {
                answer.resume();
                if (what.after !== 'hang') answer.on('end', () => (what.after === 'cut' ? request.socket.destroy() : response.writeHead(what.after).end()));
                return;
            }
            response.writeHead(answer.statusCode, answer.headers);
            response.flushHeaders();
            answer.on('data', (bytes) => {
                if (this.silent && entry.path.startsWith('/v1/events')) return;
                if (!this.trickle) response.write(bytes);
                else for (const byte of bytes) response.write(Buffer.from([byte]));
            });
            answer.on('end', () => response.end());
        });
        onward.end(body);
        return undefined;
    }

    async stop() {
        this.server.close();
        this.cutAll();
    }
}

/** Names that no other test uses. */
export const name = (word) => `${word}-${randomBytes(4).toString('hex')}`;
