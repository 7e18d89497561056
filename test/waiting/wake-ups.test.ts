import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { EXCLUSIVE, type LockKind, SHARED } from '../../lib/core/lock-mode.js';
import { TURN_MS } from '../../lib/core/store-times.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { inTime } from '../../lib/stores/contract/store-asker.js';
import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';

/** Milliseconds. More than a test takes on a busy machine, so that waiters ask only because of messages. */
const LONG = 60_000;

const once: AcquireTerms = { ttl: LONG, retry: NO_RETRY, renew: false, signals: [] };

/** A waiter with a limit of attempts sleeps for the whole delay unless a message tells it to try. */
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 2 * LONG, attempts: 1_000, delay: LONG, jitter: 0 },
};

const ONE_PERMIT: LockKind = { mode: 'permits', permits: 1 };

describe.each([1, 3, 5])('a release on %i nodes', (count) => {
  let servers: RedisServer[];
  let lookers: Redis[];
  let readers: RedisStore[];
  const opened: Redlock[] = [];

  beforeAll(async () => {
    servers = await startRedisNodes(count);
    lookers = servers.map((server) => server.client());
    readers = nodesTo(servers.map(({ url }) => url));
    await Promise.all(readers.map((reader) => reader.connect()));
  });
  afterAll(async () => {
    await Promise.all(readers.map((reader) => reader.close()));
    await Promise.all(servers.map((server) => server.stop()));
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((redlock) => redlock.close()));
    await Promise.all(lookers.map((looker) => looker.flushall()));
  });

  /** Each has its own connections and its own id, so the servers see it as a process of its own. */
  function processes(wanted: number): Promise<Redlock[]> {
    return Promise.all(
      Array.from({ length: wanted }, async (_, index) => {
        const nodes = nodesTo(servers.map(({ url }) => url));
        await Promise.all(nodes.map((node) => node.connect()));
        const redlock = redlockOver(nodes, { owner: `process ${index}`, nodeTimeout: LONG / 5 });
        opened.push(redlock);
        return redlock;
      }),
    );
  }

  /** Makes callers wait one after the other. Returns their calls. */
  async function line(callers: readonly Redlock[], terms: AcquireTerms): Promise<Promise<HeldLock>[]> {
    const calls: Promise<HeldLock>[] = [];
    for (const [index, caller] of callers.entries()) {
      calls.push(caller.acquire(['k'], terms));
      // A score above 1e13 belongs to the member for the waiters that were told to stand by.
      await until(async () => (await lookers[0]!.zcount('lock:{k}:q', 0, 1e13)) === index + 1);
    }
    return calls;
  }

  /** The number of times that each server ran the command since `CONFIG RESETSTAT`, in scripts, too. */
  function callsOf(command: string): Promise<number[]> {
    const calls = new RegExp(`^cmdstat_${command}:calls=(\\d+)`, 'm');
    return Promise.all(
      lookers.map(async (looker) => Number(calls.exec(await looker.info('commandstats'))?.[1] ?? 0)),
    );
  }

  /**
   * Releases the lock. Returns the number of messages that each node has sent.
   *
   * @param next - the call that then gets the lock, if there is one
   */
  async function messagesOf(lock: HeldLock, next?: Promise<HeldLock>): Promise<number[]> {
    await Promise.all(lookers.map((looker) => looker.config('RESETSTAT')));
    await lock.release();
    // The release resolves when a quorum has confirmed it.
    if (next) await next;
    else await until(async () => !(await holders()).includes(lock.id));
    return callsOf('publish');
  }

  /** The ids of the holders on all nodes. */
  async function holders(): Promise<string[]> {
    const states = await Promise.all(readers.map((reader) => reader.read(['k'])));
    return states.flatMap(([state]) =>
      state && 'holders' in state ? state.holders.map(({ id }) => id) : [],
    );
  }

  const onFirst = (messages: number): number[] => [messages, ...Array<number>(count - 1).fill(0)];

  test.each([
    ['an exclusive lock', EXCLUSIVE],
    ['a shared lock', SHARED],
    ['a permit', ONE_PERMIT],
  ])('sends no message and reads no queue while nobody waits for %s', async (_, kind) => {
    const [alice] = (await processes(1)) as [Redlock];
    const lock = await alice.acquire(['k'], { ...waiting, kind });
    expect(await messagesOf(lock)).toEqual(onFirst(0));
    expect(await callsOf('zrange')).toEqual(onFirst(0));
  });

  test('sends no message after the only waiter has given up', async () => {
    const [alice, bob] = (await processes(2)) as [Redlock, Redlock];
    const lock = await alice.acquire(['k'], waiting);
    const caller = new AbortController();
    const [call] = await line([bob], { ...waiting, signals: [caller.signal] });
    caller.abort(new Error('enough'));
    await expect(call).rejects.toThrow('enough');
    await until(async () => (await lookers[0]!.exists('lock:{k}:q')) === 0);
    expect(await messagesOf(lock)).toEqual(onFirst(0));
  });

  test.each([
    ['an exclusive lock', EXCLUSIVE],
    ['the only permit', ONE_PERMIT],
  ])(
    'sends one message for %s to the first waiter, and one to each of the two behind it',
    async (_, kind) => {
      const [alice, ...others] = (await processes(5)) as [Redlock, ...Redlock[]];
      for (const [index, messages] of [1, 2, 3, 3].entries()) {
        await inTime(TURN_MS, async (begins) => {
          const lock = await alice.acquire(['k'], { ...waiting, kind });
          const calls = await line(others.slice(0, index + 1), { ...waiting, kind });
          begins();
          const sent = await messagesOf(lock, calls[0]);
          for (const call of calls) await (await call).release();
          await until(async () => (await lookers[0]!.exists('lock:{k}:q')) === 0);
          expect(sent).toEqual(onFirst(messages));
        });
      }
    },
  );

  test('sends a message to a waiter that excludes readers only when the last of them releases', async () => {
    const [bob, ...all] = (await processes(4)) as [Redlock, ...Redlock[]];
    await inTime(TURN_MS, async (begins) => {
      const held = await Promise.all(all.map((each) => each.acquire(['k'], { ...waiting, kind: SHARED })));
      const [call] = await line([bob], waiting);
      await until(async () => {
        const marks = await Promise.all(lookers.map((looker) => looker.exists('lock:{k}:w')));
        return marks.every((mark) => mark === 1);
      });
      begins();
      const sent = [];
      for (const lock of held) sent.push(await messagesOf(lock, lock === held.at(-1) ? call : undefined));
      await (await call!).release();
      expect(sent).toEqual([onFirst(0), onFirst(0), onFirst(1)]);
    });
  });
});
