import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { countLocks } from '../support/core.js';
import { until } from '../support/until.js';
import { BlockedHolder, TTL } from './blocked-holder.js';
import { RedisContests } from './redis-contests.js';

// The ends of a holder, of its thread, and of their connections. blocked.test.ts has the rule (S31).

let stage: RedisContests;

beforeAll(async () => {
  stage = await RedisContests.start();
});
afterEach(() => stage.endContests());
afterAll(() => stage.stop());

test('a process that is stopped as a whole loses its lock, although maxBlocked has not passed', async () => {
  const stopped = await stage.contest('stopped', { renew: 'thread' });
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
  const killed = await stage.contest('killed', { renew: 'thread' });
  const { holder } = killed;
  expect(await holder.ask('kill-thread')).toMatchObject({ held: true });
  expect(await killed.grantedUntil(sleep(1.5 * TTL))).toBeUndefined();
  expect(await holder.ask('show')).toMatchObject({ held: true, aborted: false });
  expect(holder.log.filter((line) => line.includes('The thread for renewals has failed'))).toHaveLength(1);
  await holder.ask('close');
  expect(await holder.exited).toBe(0);
});

test('a holder renews its lock itself while only its thread cannot connect, which the log says once, and then hands it over again', async () => {
  const cut = await stage.contest('cut', { renew: 'thread' });
  const { holder } = cut;
  // The thread has connected last, and gets no connection again.
  const ids = (await stage.clients()).map((line) => Number(/^id=(\d+)/.exec(line)?.[1]));
  const maxclients = ((await stage.client.config('GET', 'maxclients')) as string[])[1]!;
  await stage.client.config('SET', 'maxclients', ids.length - 1);
  await stage.client.client('KILL', 'ID', Math.max(...ids));
  expect(await cut.grantedUntil(sleep(1.5 * TTL))).toBeUndefined();
  expect(await holder.ask('show')).toMatchObject({ held: true, aborted: false });
  await until(() => holder.log.some((line) => line.includes('the thread reaches them')));
  await stage.client.config('SET', 'maxclients', maxclients);
  await until(async () => (await stage.clients()).length === ids.length);
  // The holder renews its lock once more, and then the thread does.
  expect(await cut.grantedUntil(sleep(TTL))).toBeUndefined();
  const { granted, after } = await cut.blockedFor(1.5);
  expect(granted).toBeUndefined();
  expect(after).toMatchObject({ held: true, aborted: false });
  expect(holder.log.filter((line) => line.includes('does not reach the nodes'))).toHaveLength(1);
});

test('a thread whose own file names one server three times ends before it renews, and the holder renews its lock itself (S17)', async () => {
  const urls = stage.servers.map(({ url }) => url);
  const threadUrls = [urls[0]!, urls[0]!, urls[0]!];
  const options = { ttl: TTL, renew: 'thread' } as const;
  const holder = await BlockedHolder.start({
    ...{ program: stage.program, urls, threadUrls, key: 'tripled', options, hasClients: true },
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
  const block = 1.5 * TTL;
  const shutDown = async (way: string): Promise<void> => {
    const ending = await stage.contest(way, { renew: 'thread' });
    const since = performance.now();
    const answer = ending.holder.ask(`${way} ${block}`);
    // The release may come before the answer.
    const granted = await ending.grantedUntil(answer);
    expect(granted ?? Infinity).toBeGreaterThanOrEqual(since + block);
    await ending.holder.exited;
  };
  await Promise.all([shutDown('terminate-blocked'), shutDown('close-blocked')]);
  expect(await countLocks(stage.client)).toBe(0);
});

test('a closed application leaves no lock and no connection of the thread, and its process ends by itself', async () => {
  const { holder } = await stage.contest('closed', { renew: 'thread' });
  await until(async () => (await holder.ask(`extend ${4 * TTL}`)).remaining > 2 * TTL);
  // The connections of the test, of the contender, of the holder, and of its thread.
  await until(async () => (await stage.connections()) === 4);
  await holder.ask('close');
  expect(await holder.exited).toBe(0);
  await until(async () => (await stage.connections()) === 2);
  expect(await countLocks(stage.client)).toBe(0);
});

test('a module that the environment preloads does not run in the thread', async () => {
  const preload = "import{isMainThread}from'node:worker_threads';console.error('preloaded:'+isMainThread)";
  const nodeOptions = `--import=data:text/javascript,${preload}`;
  const urls = [stage.servers[0]!.url];
  const holder = await BlockedHolder.start({
    ...{
      program: stage.program,
      urls,
      nodeOptions,
      key: 'preloaded',
      options: { ttl: TTL, renew: 'thread' },
    },
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
    ...{ program: stage.program, urls: [stage.servers[0]!.url], key: 'forbidden' },
    options: { ttl: TTL, renew: 'thread' },
    nodeOptions: `--import=data:text/javascript,${forbid}`,
  });
  await untilRenewed(holder);
  expect(holder.log.filter((line) => line.includes('has failed: forbidden'))).toHaveLength(1);
  await holder.ask('close');
  expect(await holder.exited).toBe(0);
});

test('a module without such a lock opens no second connection', async () => {
  await stage.contest('plain', { renew: true });
  await expect(until(async () => (await stage.connections()) === 3)).resolves.toBeUndefined();
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
