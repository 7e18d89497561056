import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { connect } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import {
  type CanActivate,
  type ExecutionContext,
  Inject,
  Injectable,
  Module,
  UnauthorizedException,
} from '@nestjs/common';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { Interval, ScheduleModule } from '@nestjs/schedule';
import { RedlockBoardModule, type RedlockBoardOptions } from '../../lib/board/index.js';
import {
  defineLocks,
  FORCE_RELEASE_CHANNEL,
  type ForceReleaseEvent,
  Leader,
  type LeaderTerm,
  WithLock,
} from '../../lib/index.js';
import { LockInspector } from '../../lib/redlock/inspect/lock-inspector.js';
import type {
  BoardMessage,
  HistoryEntry,
  LockDetails,
  PrefixHistory,
  WaiterRow,
} from '../../lib/board/live/messages.js';
import { LogLines } from '../support/log-lines.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startRedis, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { type BoardApp, startBoard, usePageFiles } from './board-app.js';
import { BoardStream, hasKey } from './board-stream.js';

/** Starts a reverse proxy that replaces the beginning of each path: `outer` becomes `inner`. */
async function startPrefixProxy(port: number, outer: string, inner: string): Promise<string> {
  const server = createServer(({ method, url = '', headers }, response) => {
    const path = url.startsWith(outer) ? inner + url.slice(outer.length) : '/none';
    const forwarded = request({ host: '127.0.0.1', port, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    forwarded.on('error', () => response.destroy());
    response.on('close', () => forwarded.destroy());
    forwarded.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanUpAfterTests(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const OPEN: Partial<RedlockBoardOptions> = { public: true };
const HEADERS = { 'content-type': 'application/json', 'x-redlock-board': '1' };

let board: BoardApp | undefined;
afterEach(async () => {
  await board?.app.close();
  board = undefined;
});

@Injectable()
class Users {
  readonly admins = new Set(['ann']);
}

@Module({ providers: [Users], exports: [Users] })
class UsersModule {}

@Injectable()
class AdminGuard implements CanActivate {
  constructor(@Inject(Users) private readonly users: Users) {}

  canActivate(context: ExecutionContext): boolean {
    const { headers } = context.switchToHttp().getRequest<{ headers: Record<string, string> }>();
    return this.users.admins.has(headers['x-user'] ?? '');
  }
}

const GUARDED: Partial<RedlockBoardOptions> = { guards: [AdminGuard], imports: [UsersModule] };

describe('RedlockBoardModule.forRoot', () => {
  test.each<[string, object]>([
    [
      'RedlockBoardModule has no `guards`, so everybody who reaches this application would see its locks.',
      {},
    ],
    ['RedlockBoardModule has no `guards`', { guards: [] }],
    ['RedlockBoardModule has no `guards`', { public: false }],
    ['RedlockBoardModule has both `guards` and `public: true`', { public: true, guards: [AdminGuard] }],
    [
      "Expected `guards` to be an array of guards, each a class or an object with `canActivate`, got [ 'admin' ]",
      { guards: ['admin'] },
    ],
    ['Expected `path` to be a path that is not empty', { public: true, path: '/' }],
    ["Expected `public` to be `true` or `false`, got 'yes'", { public: 'yes' }],
    ["Expected `actor` to be a function of the request, got 'ann'", { public: true, actor: 'ann' }],
    ['Unknown option `guard` in `RedlockBoardModule.forRoot`', { guard: AdminGuard }],
  ])('`RedlockBoardModule.forRoot` throws "%s" for the options %p', (message, options) => {
    expect(() => RedlockBoardModule.forRoot({ path: '/locks', ...options })).toThrow(message);
  });
});

describe.each([
  ['Express', () => ({})],
  ['Fastify', () => ({ adapter: new FastifyAdapter() })],
])('the board on %s', (_, start) => {
  test('the exception of the function `actor` is answered as the application answers exceptions', async () => {
    for (const [thrown, status] of [
      [new UnauthorizedException(), 401],
      [new TypeError('no user'), 500],
    ] as const) {
      const actor = (): never => {
        throw thrown;
      };
      board = await startBoard(
        { ...OPEN, allowForceRelease: true, actor },
        { ...start(), logger: new LogLines() },
      );
      const lock = await board.locks.acquire('order:1');
      const stream = await BoardStream.open(board.url);
      await stream.hears(hasKey('order:1'));
      const { epoch, rows } = stream.snapshot;
      const body = JSON.stringify({ epoch, n: rows[0]?.n, ids: [lock.id] });
      const response = await fetch(`${board.url}/release`, { method: 'POST', headers: HEADERS, body });
      expect([response.status, lock.isHeld()]).toEqual([status, true]);
      await board.app.close();
    }
  });

  test('the board answers a HEAD request for each of its files, also for the stream', async () => {
    board = await startBoard(OPEN, start());
    for (const [path, type] of [
      ['', 'text/html'],
      ['/events', 'text/event-stream'],
      ['/history', 'application/json'],
    ]) {
      const response = await fetch(board.url + path, { method: 'HEAD', signal: AbortSignal.timeout(5_000) });
      expect([path, response.status, response.headers.get('content-type')]).toEqual([
        path,
        200,
        expect.stringContaining(type!),
      ]);
    }
  });

  test('the board serves its page under a path prefix, with relative file names and a strict security policy', async () => {
    board = await startBoard(OPEN, { ...start(), prepare: (app) => app.setGlobalPrefix('api/v1') });
    const url = board.url.replace('/locks', '/api/v1/locks');
    const page = await fetch(url);
    expect(page.status).toBe(200);
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8');
    expect(page.headers.get('content-security-policy')).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    );
    const text = await page.text();
    expect([...text.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, target]) => target)).toEqual([
      'data:,',
      './locks/board.css',
      './locks/board.js',
    ]);
    expect((await fetch(board.url)).status).toBe(404);
    expect((await fetch(`${url}/elsewhere`)).status).toBe(404);
  });

  test('the board sends its script in an accepted encoding, and answers 304 while the script is unchanged', async () => {
    await usePageFiles();
    board = await startBoard(OPEN, start());
    const url = `${board.url}/board.js`;
    const texts: string[] = [];
    let tag = '';
    for (const encoding of ['gzip, deflate, br', 'gzip', 'identity']) {
      const answer = await fetch(url, { headers: { 'accept-encoding': encoding } });
      const [used] = /br|gzip/.exec(encoding.split(', ').at(-1) ?? '') ?? [null];
      expect(answer.headers.get('content-encoding')).toBe(used);
      texts.push(await answer.text());
      tag = answer.headers.get('etag') ?? '';
    }
    expect(new Set(texts).size).toBe(1);
    expect(texts[0]?.length).toBeGreaterThan(10_000);
    expect((await fetch(url, { headers: { 'if-none-match': tag } })).status).toBe(304);
  });

  test.each([
    ['/shop/locks to /locks', '/locks', '/shop/locks'],
    ['/shop/locks/ to /locks/', '/locks/', '/shop/locks/'],
    ['/shop/ops/ to /locks/', '/locks/', '/shop/ops/'],
  ])('the board serves its files behind a reverse proxy that maps the path %s', async (__, inner, outer) => {
    await usePageFiles();
    board = await startBoard(OPEN, start());
    const { port } = new URL(board.url);
    const proxy = await startPrefixProxy(Number(port), outer, inner);
    const page = await fetch(`${proxy}${outer}`);
    expect(page.status).toBe(200);
    const [, script = ''] = /src="([^"]*)"/.exec(await page.text()) ?? [];
    const { href } = new URL(script, `${proxy}${outer}`);
    expect((await fetch(href)).headers.get('content-type')).toBe('text/javascript; charset=utf-8');
    // The page requests its data from the folder of its script.
    const stream = await BoardStream.open(new URL('.', href).href.slice(0, -1));
    await stream.hears(({ type }) => type === 'snapshot');
  });

  test('the board sends viewers a new lock within a second, and also sends the waiter and the release of a lock', async () => {
    board = await startBoard(OPEN, start());
    const { locks, url } = board;
    const stream = await BoardStream.open(url);
    await stream.hears(({ type }) => type === 'snapshot');
    const took: number[] = [];
    for (let n = 2; n < 6; n++) {
      await locks.acquire(`order:${n}`);
      const began = performance.now();
      await stream.hears(hasKey(`order:${n}`));
      took.push(performance.now() - began);
    }
    // A busy machine delays some messages. The shortest of these times shows how fast a message can arrive.
    expect(Math.min(...took)).toBeLessThan(1_000);
    const lock = await locks.acquire('order:1');
    const waiting = locks.acquire('order:1', { retry: { timeout: 60_000 } });
    await stream.hears(({ rows = [] }) => rows.some(({ waiters }) => waiters[0]?.own === true));
    await lock.release();
    await (await waiting).release();
    await stream.hears((message) => message.type === 'change' && message.gone !== undefined);
  });

  test('the board refuses all requests of a viewer whom the guard rejects', async () => {
    board = await startBoard({ ...GUARDED, allowForceRelease: true }, start());
    const { locks, url } = board;
    const lock = await locks.acquire('order:1');
    for (const file of ['', '/board.js', '/events', '/details?epoch=a&n=1', '/history']) {
      expect([file, (await fetch(url + file)).status]).toEqual([file, 403]);
    }
    const body = JSON.stringify({ epoch: 'a', n: 1, ids: [lock.id] });
    expect((await fetch(`${url}/release`, { method: 'POST', headers: HEADERS, body })).status).toBe(403);
    expect((await fetch(url, { headers: { 'x-user': 'ann' } })).status).toBe(200);
    expect(lock.isHeld()).toBe(true);
  });

  test('a release request ends only the holder that it names, and the published event contains the actor', async () => {
    const told: ForceReleaseEvent[] = [];
    const hear = (event: unknown): void => void told.push(event as ForceReleaseEvent);
    subscribe(FORCE_RELEASE_CHANNEL, hear);
    const actor = ({ headers }: { headers: Record<string, string> }): string => headers['x-user'] ?? 'nobody';
    board = await startBoard({ ...OPEN, allowForceRelease: true, actor }, start());
    const { locks, url } = board;
    const lock = await locks.acquire('order:1');
    const stream = await BoardStream.open(url);
    await stream.hears(hasKey('order:1'));
    const { epoch, rows } = stream.snapshot;
    const body = JSON.stringify({ epoch, n: rows[0]?.n, ids: [lock.id] });
    const send = (): Promise<Response> =>
      fetch(`${url}/release`, { method: 'POST', headers: { ...HEADERS, 'x-user': 'ann' }, body });
    await expect((await send()).json()).resolves.toEqual({ released: 1 });
    expect(lock.signal.aborted).toBe(true);
    expect(told).toEqual([{ keys: ['order:1'], id: lock.id, actor: 'ann', released: true }]);
    // A second request with the id of the first holder does not end the next holder.
    const next = await locks.acquire('order:1');
    await stream.hears(({ rows: changed = [] }) => changed[0]?.holders[0]?.id === next.id);
    await expect((await send()).json()).resolves.toEqual({ released: 0 });
    expect(next.isHeld()).toBe(true);
    unsubscribe(FORCE_RELEASE_CHANNEL, hear);
  });

  test('the application can shut down while a viewer of the board is connected', async () => {
    board = await startBoard(OPEN, start());
    const stream = await BoardStream.open(board.url);
    await stream.hears(({ type }) => type === 'snapshot');
    await board.app.close();
    await expect(stream.ended).resolves.toBeUndefined();
  });
});

describe('the board with release requests', () => {
  async function send(
    headers: Record<string, string>,
    options: Partial<RedlockBoardOptions> = {},
  ): Promise<{ response: Response; isHeld: boolean }> {
    board = await startBoard({ ...OPEN, allowForceRelease: true, ...options });
    const lock = await board.locks.acquire('order:1');
    const stream = await BoardStream.open(board.url);
    await stream.hears(hasKey('order:1'));
    const { epoch, rows } = stream.snapshot;
    const body = JSON.stringify({ epoch, n: rows[0]?.n, ids: [lock.id] });
    const response = await fetch(`${board.url}/release`, { method: 'POST', headers, body });
    return { response, isHeld: lock.isHeld() };
  }

  test('the board refuses a release request unless `allowForceRelease` is on', async () => {
    const { response, isHeld } = await send(HEADERS, { allowForceRelease: false });
    expect(isHeld).toBe(true);
    expect([response.status, await response.json()]).toEqual([
      403,
      { message: 'This board only shows locks: its option allowForceRelease is off.' },
    ]);
  });

  const FOREIGN = 'This request comes from a page of another site.';

  test.each<[string, Record<string, string>, string]>([
    [
      'a form, which cannot send the header x-redlock-board',
      { 'content-type': 'application/json' },
      'This request does not come from the board: it has no header x-redlock-board.',
    ],
    ['a script of another site', { ...HEADERS, 'sec-fetch-site': 'cross-site' }, FOREIGN],
    ['a script of another host of the same site', { ...HEADERS, 'sec-fetch-site': 'same-site' }, FOREIGN],
    [
      'another site in an old browser, which sends only Origin',
      { ...HEADERS, origin: 'http://elsewhere.example' },
      FOREIGN,
    ],
    ['a page with the origin "null"', { ...HEADERS, origin: 'null' }, FOREIGN],
  ])('the board refuses a release request from %s', async (_, headers, message) => {
    const { response, isHeld } = await send(headers);
    expect([response.status, isHeld]).toEqual([403, true]);
    await expect(response.json()).resolves.toEqual({ message: expect.stringContaining(message) });
  });

  test('the board accepts a release request from its own page', async () => {
    const { response, isHeld } = await send({ ...HEADERS, 'sec-fetch-site': 'same-origin' });
    expect([response.status, isHeld]).toEqual([200, false]);
  });

  test('the board refuses a release request with an invalid body', async () => {
    board = await startBoard({ ...OPEN, allowForceRelease: true });
    for (const body of ['[]', '{}', '{"epoch":"a","n":1,"ids":[]}', '{"epoch":"a","n":"1","ids":["x"]}']) {
      const response = await fetch(`${board.url}/release`, { method: 'POST', headers: HEADERS, body });
      expect([body, response.status]).toEqual([body, 400]);
    }
  });

  test('the board refuses a release request with 501 ids, and accepts a release request with 500', async () => {
    board = await startBoard({ ...OPEN, allowForceRelease: true });
    await board.locks.acquire('order:1');
    const stream = await BoardStream.open(board.url);
    await stream.hears(hasKey('order:1'));
    const { epoch, rows } = stream.snapshot;
    const answerTo = async (count: number): Promise<unknown[]> => {
      const ids = Array.from({ length: count }, (_, index) => `id:${index}`);
      const body = JSON.stringify({ epoch, n: rows[0]?.n, ids });
      const response = await fetch(`${board?.url}/release`, { method: 'POST', headers: HEADERS, body });
      return [response.status, await response.json()];
    };
    const message = 'Expected at most 500 ids in one request, got 501. Send them in several requests.';
    expect(await answerTo(501)).toEqual([400, { message }]);
    expect(await answerTo(500)).toEqual([200, { released: 0 }]);
  });

  test('the board calls the function `actor` only for a release request that the board accepts', async () => {
    let asked = 0;
    const actor = (): string => {
      asked++;
      return 'ann';
    };
    for (const headers of [{ 'content-type': 'application/json' }, { ...HEADERS, origin: 'null' }]) {
      const { response } = await send(headers, { actor });
      expect([response.status, asked]).toEqual([403, 0]);
      await board?.app.close();
    }
    expect((await send(HEADERS, { actor, allowForceRelease: false })).response.status).toBe(403);
    expect(asked).toBe(0);
    await board?.app.close();
    expect((await send(HEADERS, { actor })).response.status).toBe(200);
    expect(asked).toBe(1);
  });

  test('the board answers a release request with the exception that the function `actor` throws', async () => {
    const actor = (): never => {
      throw new UnauthorizedException();
    };
    const { response, isHeld } = await send(HEADERS, { actor });
    expect([response.status, isHeld]).toEqual([401, true]);
  });
});

test('over HTTP/2, without a Host header, the board accepts requests only from its own page', async () => {
  const adapter = new FastifyAdapter({ http2: true } as object);
  board = await startBoard({ ...OPEN, allowForceRelease: true }, { adapter });
  const lock = await board.locks.acquire('order:1');
  const { origin } = new URL(board.url);
  const session = connect(origin);
  cleanUpAfterTests(async () => session.destroy());
  const send = async (headers: Record<string, string>, body?: string): Promise<[unknown, string]> => {
    const stream = session.request(headers);
    const [answer] = (await once(stream.end(body), 'response')) as [Record<string, unknown>];
    stream.setEncoding('utf8');
    let text = '';
    for await (const chunk of stream) {
      text += String(chunk);
      if (text.includes('"snapshot"')) break;
    }
    return [answer[':status'], text];
  };
  const [, events] = await send({ ':path': '/locks/events', origin });
  const [, epoch = ''] = /"epoch":"(\w+)"/.exec(events) ?? [];
  const release = { ':method': 'POST', ':path': '/locks/release', ...HEADERS };
  const body = JSON.stringify({ epoch, n: 1, ids: [lock.id] });
  for (const elsewhere of ['http://elsewhere.example', 'null']) {
    expect((await send({ ':path': '/locks/events', origin: elsewhere }))[0]).toBe(403);
    expect((await send({ ...release, origin: elsewhere }, body))[0]).toBe(403);
  }
  expect(lock.isHeld()).toBe(true);
  expect(await send({ ...release, origin }, body)).toEqual([200, '{"released":1}']);
  expect(lock.isHeld()).toBe(false);
});

describe('the board', () => {
  async function numberOf({ url }: BoardApp): Promise<{ epoch: string; n: number | undefined }> {
    const stream = await BoardStream.open(url);
    await stream.hears(hasKey('order:1'));
    const { epoch, rows } = stream.snapshot;
    stream.close();
    return { epoch, n: rows[0]?.n };
  }

  test('the board polls the locks once for all viewers, and does not poll without viewers', async () => {
    board = await startBoard(OPEN);
    const { locks, url } = board;
    await locks.acquire('order:1');
    let looks = 0;
    const { list } = LockInspector.prototype;
    LockInspector.prototype.list = function (...args) {
      looks++;
      return list.apply(this, args);
    };
    try {
      const began = performance.now();
      const streams = await Promise.all(Array.from({ length: 10 }, () => BoardStream.open(url)));
      await Promise.all(streams.map((stream) => stream.hears(hasKey('order:1'))));
      await until(() => looks > 3);
      // A poll takes at least 400 ms with its pause. If each of ten viewers polled separately, there would be ten times
      // as many polls.
      expect(looks).toBeLessThan(4 + (3 * (performance.now() - began)) / 400);
      for (const stream of streams) stream.close();
      await Promise.all(streams.map(({ ended }) => ended));
      // Polling has stopped when 1.5 s pass without a poll. The number of checks shows that this process ran during
      // that time.
      let [before, checks, since] = [looks, 0, performance.now()];
      await until(() => {
        if (looks !== before) [before, checks, since] = [looks, 0, performance.now()];
        checks++;
        return checks > 30 && performance.now() - since > 1_500;
      }, 120_000);
    } finally {
      LockInspector.prototype.list = list;
    }
  });

  test('the board shows the waiters of all processes, even those that began to wait before the first viewer came', async () => {
    const redis = await startRedis();
    const startAs = (owner: string): Promise<BoardApp> =>
      startBoard(OPEN, { locks: { nodes: redis.url, owner } });
    const [one, other] = [await startAs('api:1'), await startAs('api:2')];
    const lock = await one.locks.acquire('order:1');
    const patient = { retry: { timeout: 60_000 } };
    const seen = async ({ url }: BoardApp, count: number): Promise<readonly WaiterRow[]> => {
      const stream = await BoardStream.open(url);
      const { rows = [] } = await stream.hears((message) => message.rows?.[0]?.waiters.length === count);
      stream.close();
      return rows[0]?.waiters ?? [];
    };
    const at = expect.any(Number);
    const mode = 'exclusive';
    const before = other.locks.acquire('order:1', patient);
    expect(await seen(one, 1)).toEqual([{ owner: 'api:2', since: at, mode }]);
    // This board recorded no calls before its first viewer came. It knows the waiter from the queue in Redis.
    expect(await seen(other, 1)).toEqual([{ owner: 'api:2', since: at, mode, own: true }]);
    const after = one.locks.acquire('order:1', patient);
    expect(await seen(one, 2)).toEqual([
      { owner: 'api:2', since: at, mode },
      { owner: 'api:1', since: at, mode, own: true },
    ]);
    const { epoch, n } = await numberOf(one);
    const details = await (await fetch(`${one.url}/details?epoch=${epoch}&n=${n}`)).json();
    expect(details).toMatchObject({ waiters: [{ owner: 'api:2' }, { owner: 'api:1', own: true }] });
    await lock.release();
    for (const next of [before, after]) await (await next).release();
  });

  test('the board marks a lock of its own process, even if it was acquired before the first viewer came', async () => {
    board = await startBoard(OPEN);
    await board.locks.acquire('order:1');
    const stream = await BoardStream.open(board.url);
    await stream.hears(hasKey('order:1'));
    const { epoch, rows } = stream.snapshot;
    expect(rows).toMatchObject([{ holders: [{ own: true }] }]);
    const details = await fetch(`${board.url}/details?epoch=${epoch}&n=${rows[0]?.n}`);
    await expect(details.json()).resolves.toMatchObject({
      holders: [{ own: true }],
      history: [{ kind: 'held', own: true, key: 'order:1' }],
    });
  });

  test('the board sends a reconnected viewer only the events that this viewer missed', async () => {
    board = await startBoard(OPEN);
    const { locks, url } = board;
    const [first, other] = await Promise.all([BoardStream.open(url), BoardStream.open(url)]);
    await first.hears(({ type }) => type === 'snapshot');
    await locks.acquire('order:1');
    await first.hears(hasKey('order:1'));
    first.close();
    await first.ended;
    await locks.acquire('order:2');
    await other.hears(hasKey('order:2'));
    const again = await BoardStream.open(url, first.id);
    await again.hears(hasKey('order:2'));
    expect(again.messages.filter(({ type }) => type === 'snapshot')).toEqual([]);
    expect(again.messages.filter(hasKey('order:1'))).toEqual([]);
    // A viewer that names a message id of another process gets the whole state.
    const elsewhere = await BoardStream.open(url, 'ffffffffffff.3');
    await elsewhere.hears(({ type }) => type === 'snapshot');
  });

  test('when a lock is extended, the board sends only its new end and its number of extensions', async () => {
    board = await startBoard(OPEN, { locks: { nodes: 'memory' } });
    const stream = await BoardStream.open(board.url);
    // The first extension comes after 3 s, so that a poll sees the lock before it is extended, even on a busy machine.
    await board.locks.acquire('order:1', { ttl: 9_000 });
    const message = await stream.hears((each) => each.type === 'change' && each.renewed !== undefined);
    const number = expect.any(Number);
    expect(message).toMatchObject({ renewed: [[number, 0, number, 1, number]] });
    expect(message).not.toHaveProperty('rows');
  });

  test('the history of a lock shows that it was held, skipped, handed over to a waiter, and released by force', async () => {
    class Job {
      @WithLock('order:1', { onBusy: 'skip' })
      run(): Promise<void> {
        return Promise.resolve();
      }
    }
    board = await startBoard(
      { ...OPEN, allowForceRelease: true },
      { metadata: { providers: [Job] }, locks: { nodes: 'memory', owner: 'api:1' } },
    );
    const { app, locks, url } = board;
    const stream = await BoardStream.open(url);
    const lock = await locks.acquire('order:1');
    await app.get(Job).run();
    const waiting = locks.acquire('order:1');
    await stream.hears(({ rows = [] }) => rows.some(({ waiters }) => waiters.length === 1));
    await lock.release();
    const next = await waiting;
    await locks.forceRelease('order:1', { actor: 'ann' });
    expect(next.isHeld()).toBe(false);
    const { epoch } = stream.snapshot;
    const { rows = [] } = await stream.hears(hasKey('order:1'));
    const answer = await fetch(`${url}/details?epoch=${epoch}&n=${rows[0]?.n}`);
    const details = (await answer.json()) as LockDetails;
    // On a busy machine the refused attempt takes so long that it is also a wait.
    const withoutWaits = (history: readonly HistoryEntry[]): HistoryEntry[] =>
      history.filter(({ kind }) => kind !== 'waited');
    const at = expect.any(Number);
    const common = { key: 'order:1', who: 'api:1' };
    expect(details.key).toBe('order:1');
    expect(withoutWaits(details.history)).toMatchObject([
      { ...common, kind: 'held', from: at, to: at, end: 'released', token: lock.fencingToken },
      { ...common, kind: 'skipped', at, reason: 'held' },
      { ...common, kind: 'held', asked: at, from: at, to: at, end: 'lost', token: next.fencingToken },
      { kind: 'forced', key: 'order:1', who: 'ann', at },
    ]);
    const { history } = (await (await fetch(`${url}/history?prefix=order:`)).json()) as PrefixHistory;
    expect(withoutWaits(history)).toHaveLength(4);
    const others = (await (await fetch(`${url}/history?prefix=bill:`)).json()) as PrefixHistory;
    expect(others.history).toEqual([]);
  });

  test('the board sends viewers the leaders, the ticks, and declared locks that nobody holds', async () => {
    class Clock {
      @Interval(300)
      @WithLock('clock', { oncePerTick: true, ttl: 5_000 })
      async strike(): Promise<void> {}
    }
    class Consumer {
      @Leader('consumer')
      async consume({ signal }: LeaderTerm): Promise<void> {
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
      }
    }
    const declared = defineLocks({
      'order:settle': { key: 'settle', ttl: 30_000, team: 'payments', about: 'one settlement at a time' },
      report: { key: (tenant: string) => `report:${tenant}`, permits: 5 },
    });
    board = await startBoard(OPEN, {
      locks: { nodes: 'memory', locks: declared, owner: 'api:1' },
      metadata: { imports: [ScheduleModule.forRoot()], providers: [Clock, Consumer] },
    });
    const stream = await BoardStream.open(board.url);
    const leads = ({ status }: { status?: { campaigns: readonly object[] } }): boolean =>
      JSON.stringify(status?.campaigns) === '[{"name":"consumer","isLeader":true}]';
    await stream.hears(leads);
    await stream.hears(hasKey('leader:consumer'));
    await stream.hears(({ status }) => (status?.ticks[0]?.ran ?? 0) > 0);
    expect(stream.snapshot.about.declared).toEqual([
      {
        name: 'order:settle',
        keys: ['settle'],
        team: 'payments',
        about: 'one settlement at a time',
        mode: 'exclusive',
        policy: 'ttl 30000',
        overridden: [],
      },
      { name: 'report', keys: null, mode: 'permits', permits: 5, policy: 'ttl 10000', overridden: [] },
    ]);
  });

  test('the board shortens a key of two kilobytes in the list, and sends it in full in the details', async () => {
    board = await startBoard(OPEN);
    const key = `long:${'x'.repeat(1_995)}`;
    await board.locks.acquire(key);
    const stream = await BoardStream.open(board.url);
    await stream.hears(({ rows = [] }) => rows.length === 1);
    const { epoch, rows } = stream.snapshot;
    expect(rows[0]).toMatchObject({ key: key.slice(0, 200), length: key.length });
    const details = await (await fetch(`${board.url}/details?epoch=${epoch}&n=${rows[0]?.n}`)).json();
    expect(details).toMatchObject({ key });
  });

  test('the board sends viewers which nodes do not vote yet, why, and when they will vote', async () => {
    const servers = await startRedisNodes(3);
    board = await startBoard(OPEN, { locks: { nodes: servers.map(({ url }) => url) } });
    const stream = await BoardStream.open(board.url);
    const isKnown = ({ status }: BoardMessage): boolean =>
      status?.nodes?.nodes.every(({ state }) => state === 'guarded') === true;
    const { status } = await stream.hears(isKnown);
    expect(status?.nodes).toMatchObject({ available: false, quorum: 2 });
    for (const { votesIn = 0, reason } of status?.nodes?.nodes ?? []) {
      expect(votesIn).toBeGreaterThan(0);
      expect(reason).toContain('started or lost its data a short while ago');
    }
  });

  test('the board sends viewers no credentials of nodes', async () => {
    const redis = await startRedis({ args: ['--requirepass', 'secret'] });
    board = await startBoard(OPEN, { locks: { nodes: redis.url.replace('//', '//:secret@') } });
    await board.locks.acquire('order:1');
    const stream = await BoardStream.open(board.url);
    await stream.hears(({ status }) => status?.nodes?.available === true);
    await redis.stop();
    await stream.hears(({ status }) => status?.problem !== undefined);
    await stream.hears(({ status }) => status?.nodes?.available === false);
    expect(JSON.stringify(stream.messages)).not.toContain('secret');
  });
});

test('the application does not start if the board names a lock instance that does not exist', async () => {
  await expect(startBoard({ ...OPEN, instance: 'billing' })).rejects.toThrow(/LockService|billing/);
});
