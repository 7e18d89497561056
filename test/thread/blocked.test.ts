import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import type { AcquireOptions } from '../../lib/index.js';
import { countLocks, nodesTo } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { BlockedHolder, Contest, holderProgram, TTL } from './blocked-holder.js';

let program: string;
let servers: RedisServer[];
let client: Redis;
const contests: Contest[] = [];

beforeAll(async () => {
  [program, servers] = await Promise.all([holderProgram(), startRedisNodes(3)]);
  client = new Redis(servers[0]!.url);
});

afterEach(async () => {
  await Promise.all(contests.splice(0).map((each) => each.end()));
  // Only the connection of the test is left.
  await until(async () => (await connections()) === 1);
});

afterAll(async () => {
  client.disconnect();
  await Promise.all(servers.map((server) => server.stop()));
});

async function contest(
  key: string,
  options: AcquireOptions,
  nodes = 1,
  { hasClients = false, leads = false, user = '' } = {},
): Promise<Contest> {
  const urls = servers.slice(0, nodes).map(({ url }) => url);
  const urlsOfHolder = urls.map((url) => url.replace('//', `//${user}`));
  const holder = { program, urls: urlsOfHolder, key, options, hasClients, leads };
  const begun = await Contest.start(nodesTo(urls), holder);
  contests.push(begun);
  return begun;
}

test("a lock or a term with renew: 'thread' is not granted while its holder is blocked for 5 ttl, and the first statement knows that it is held", async () => {
  await client.call('ACL', 'SETUSER', 'holder', 'on', '>secret', '~*', '&*', '+@all');
  const all = await Promise.all([
    contest('one', { renew: 'thread' }),
    contest('three', { renew: 'thread' }, 3),
    contest('clients', { renew: 'thread' }, 1, { hasClients: true }),
    contest('user', { renew: 'thread' }, 1, { user: 'holder:secret@' }),
    contest('shared', { renew: 'thread', mode: 'shared' }),
    contest('permit', { renew: 'thread', permits: 1 }),
    contest('leader:all', {}, 1, { leads: true }),
  ]);
  const blocked = Promise.all(all.map((each) => each.blockedFor(5)));
  // One of the three nodes fails during the block.
  await servers[2]!.kill();
  const results = await blocked;
  await servers[2]!.start();
  for (const { granted, after } of results) {
    expect(granted).toBeUndefined();
    expect(after).toMatchObject({ held: true, aborted: false });
    // The thread has renewed the lock in its last third at the latest.
    expect(after.remaining).toBeGreaterThan(0);
  }
  for (const each of all) {
    const { holder } = each;
    expect(await holder.ask('show')).toMatchObject({ held: true, aborted: false });
    expect(await holder.ask('release')).toMatchObject({ held: false, aborted: false });
    expect(await each.grantedUntil()).toBeDefined();
  }
});

test('a lock with renew: true is granted while its holder is blocked, and its holder is told', async () => {
  const control = await contest('control', { renew: true });
  const { granted, after } = await control.blockedFor(3);
  expect(granted).toBeDefined();
  expect(after).toMatchObject({ held: false });
  expect(await control.holder.ask('show')).toMatchObject({ held: false, aborted: true });
});

test('a lock whose holder is blocked for longer than maxBlocked is granted, and the error says why', async () => {
  const maxBlocked = 2_000;
  const endless = await contest('endless', { renew: 'thread', maxBlocked });
  const since = performance.now();
  // The lock ends between maxBlocked + 2/3 ttl and maxBlocked + ttl + 250 ms, the time of a sign of life. The block lasts
  // some seconds longer. The lower limit leaves most of a ttl to a busy machine.
  const { granted, after } = await endless.blockedFor(3.5);
  expect(granted).toBeDefined();
  expect(granted! - since).toBeGreaterThan(maxBlocked);
  expect(after).toMatchObject({
    held: false,
    error: expect.stringContaining('blocked for longer than its maxBlocked of 2000 ms'),
  });
  expect(await endless.holder.ask('show')).toMatchObject({ held: false, aborted: true });
});

test('a process that is stopped as a whole loses its lock, although maxBlocked has not passed', async () => {
  const stopped = await contest('stopped', { renew: 'thread' });
  const { holder } = stopped;
  holder.send('SIGSTOP');
  expect(await stopped.grantedUntil()).toBeDefined();
  holder.send('SIGCONT');
  expect(await holder.ask('show')).toMatchObject({
    held: false,
    error: expect.stringContaining('its validity ran out'),
  });
});

test('a holder renews its lock itself after its thread has ended, and the log says so once', async () => {
  const killed = await contest('killed', { renew: 'thread' });
  const { holder } = killed;
  expect(await holder.ask('kill-thread')).toMatchObject({ held: true });
  expect(await killed.grantedUntil(sleep(2 * TTL))).toBeUndefined();
  expect(await holder.ask('show')).toMatchObject({ held: true, aborted: false });
  expect(holder.log.filter((line) => line.includes('The thread for renewals has failed'))).toHaveLength(1);
  await holder.ask('close');
  expect(await holder.exited).toBe(0);
});

test('a holder renews its lock itself while only its thread cannot connect, which the log says once, and then hands it over again', async () => {
  const cut = await contest('cut', { renew: 'thread' });
  const { holder } = cut;
  // The thread has connected last, and gets no connection again.
  const ids = (await clients()).map((line) => Number(/^id=(\d+)/.exec(line)?.[1]));
  const maxclients = ((await client.config('GET', 'maxclients')) as string[])[1]!;
  await client.config('SET', 'maxclients', ids.length - 1);
  await client.client('KILL', 'ID', Math.max(...ids));
  expect(await cut.grantedUntil(sleep(3 * TTL))).toBeUndefined();
  expect(await holder.ask('show')).toMatchObject({ held: true, aborted: false });
  await until(() => holder.log.some((line) => line.includes('the thread reaches them')));
  await client.config('SET', 'maxclients', maxclients);
  await until(async () => (await clients()).length === ids.length);
  // The holder renews its lock once more, and then the thread does.
  expect(await cut.grantedUntil(sleep(TTL))).toBeUndefined();
  const { granted, after } = await cut.blockedFor(3);
  expect(granted).toBeUndefined();
  expect(after).toMatchObject({ held: true, aborted: false });
  expect(holder.log.filter((line) => line.includes('does not reach the nodes'))).toHaveLength(1);
});

test('a thread whose own file names one server three times ends before it renews, and the holder renews its lock itself (S17)', async () => {
  const urls = servers.map(({ url }) => url);
  const threadUrls = [urls[0]!, urls[0]!, urls[0]!];
  const options = { ttl: TTL, renew: 'thread' } as const;
  const holder = await BlockedHolder.start({
    ...{ program, urls, threadUrls, key: 'tripled', options, hasClients: true },
  });
  const log = (): string => holder.log.join(' ');
  await until(() => log().includes('The thread for renewals has failed'));
  expect(log()).toMatch(/has failed: cannot be used for locks: .*same server/);
  await untilRenewed(holder);
  await holder.ask('release');
  // The clients are the application's, and stay connected.
  await holder.kill();
});

test('a holder that shuts down while it is blocked, by SIGTERM or `app.close()`, keeps its lock until the end of the block, and then releases it', async () => {
  const block = 2 * TTL;
  const shutDown = async (way: string): Promise<void> => {
    const ending = await contest(way, { renew: 'thread' });
    const since = performance.now();
    const answer = ending.holder.ask(`${way} ${block}`);
    // The release may come before the answer.
    const granted = await ending.grantedUntil(answer);
    expect(granted ?? Infinity).toBeGreaterThanOrEqual(since + block);
    await ending.holder.exited;
  };
  await Promise.all([shutDown('terminate-blocked'), shutDown('close-blocked')]);
  expect(await countLocks(client)).toBe(0);
});

test('a closed application leaves no lock and no connection of the thread, and its process ends by itself', async () => {
  const { holder } = await contest('closed', { renew: 'thread' });
  await until(async () => (await holder.ask(`extend ${4 * TTL}`)).remaining > 2 * TTL);
  // The connections of the test, of the contender, of the holder, and of its thread.
  expect(await connections()).toBe(4);
  await holder.ask('close');
  expect(await holder.exited).toBe(0);
  await until(async () => (await connections()) === 2);
  expect(await countLocks(client)).toBe(0);
});

test('a module that the environment preloads does not run in the thread', async () => {
  const preload = "import{isMainThread}from'node:worker_threads';console.error('preloaded:'+isMainThread)";
  const nodeOptions = `--import=data:text/javascript,${preload}`;
  const urls = [servers[0]!.url];
  const holder = await BlockedHolder.start({
    ...{ program, urls, nodeOptions, key: 'preloaded', options: { ttl: TTL, renew: 'thread' } },
  });
  await holder.ask('close');
  expect(await holder.exited).toBe(0);
  expect(holder.log.filter((line) => line.startsWith('preloaded'))).toEqual(['preloaded:true']);
});

test('a holder that may start no thread renews its lock itself, and the log says so once', async () => {
  const forbid =
    "import%20w%20from'node:worker_threads';import{syncBuiltinESMExports}from'node:module';" +
    "w.Worker=class{constructor(){throw(Error('forbidden'))}};syncBuiltinESMExports()";
  const holder = await BlockedHolder.start({
    ...{ program, urls: [servers[0]!.url], key: 'forbidden', options: { ttl: TTL, renew: 'thread' } },
    nodeOptions: `--import=data:text/javascript,${forbid}`,
  });
  await untilRenewed(holder);
  expect(holder.log.filter((line) => line.includes('has failed: forbidden'))).toHaveLength(1);
  await holder.ask('close');
  expect(await holder.exited).toBe(0);
});

test('a module without such a lock opens no second connection', async () => {
  await contest('plain', { renew: true });
  expect(await connections()).toBe(3);
});

async function untilRenewed(holder: BlockedHolder): Promise<void> {
  let before = 0;
  await until(async () => {
    const { remaining } = await holder.ask('show');
    const isRenewed = before > 0 && remaining > before;
    before = remaining;
    return isRenewed;
  });
}

async function clients(): Promise<string[]> {
  return String(await client.client('LIST'))
    .trim()
    .split('\n');
}

async function connections(): Promise<number> {
  return (await clients()).length;
}
