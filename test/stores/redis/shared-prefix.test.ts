import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { ForeignValueError } from '../../../lib/core/errors.js';
import type { KeyState } from '../../../lib/core/ports.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { newFleet, nodesTo, redlockOver } from '../../support/core.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

// Another program uses the same prefix in Redis.

const waiting: AcquireTerms = {
  ttl: 60_000,
  renew: true,
  signals: [],
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

describe('a key prefix that another program also uses in Redis', () => {
  let servers: readonly RedisServer[];
  let client: Redis;

  beforeAll(async () => {
    servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
    client = servers[0]!.client();
  });
  beforeEach(() => Promise.all(servers.map((server) => server.client().flushall())));
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  async function opened(count: number) {
    const nodes = nodesTo(
      servers.slice(0, count).map(({ url }) => url),
      newFleet(false, count > 1),
    );
    await Promise.all(nodes.map((node) => node.connect()));
    return { nodes, redlock: redlockOver(nodes, PATIENT) };
  }

  test.each([
    ['a text', () => client.set('lock:{k}', 'theirs')],
    ['a list', () => client.rpush('lock:{k}', 'theirs')],
  ])('a call that would wait ends at once, with the remedy, on %s', async (_, put) => {
    const { nodes, redlock } = await opened(1);
    await put();
    const began = performance.now();
    const refused = await redlock.acquire(['k'], waiting).catch((error: unknown) => error);
    expect(refused).toMatchObject({
      code: 'LOCK_UNAVAILABLE',
      message: expect.stringContaining('change `keyPrefix`'),
      cause: expect.any(ForeignValueError),
    });
    expect(performance.now() - began).toBeLessThan(waiting.retry.timeout / 2);
    await Promise.all(nodes.map((node) => node.close()));
  });

  test('a call still gets its lock when only one node of three has the value of another program', async () => {
    const { nodes, redlock } = await opened(3);
    await client.set('lock:{k}', 'theirs');
    const lock = await redlock.acquire(['k'], waiting);
    await lock.release();
    expect(await client.get('lock:{k}')).toBe('theirs');
    await Promise.all(nodes.map((node) => node.close()));
  });

  test('the value of another program in place of the last tick ends a call at once, and is left as it is', async () => {
    const { nodes, redlock } = await opened(1);
    const tick = { schedule: 'nightly', at: Date.now(), life: 60_000, from: 'release' } as const;
    await client.set('lock:{k}:t:nightly', 'theirs');
    await expect(redlock.acquire(['k'], { ...waiting, tick })).rejects.toThrow('not a lock of this package');
    // The other program writes its value while the tick runs.
    await client.del('lock:{k}:t:nightly');
    const lock = await redlock.acquire(['k'], { ...waiting, tick });
    await client.set('lock:{k}:t:nightly', '0: theirs');
    await lock.release();
    expect(await client.get('lock:{k}:t:nightly')).toBe('0: theirs');
    await Promise.all(nodes.map((node) => node.close()));
  });

  test.each(['theirs', '42', '9999999999999999:', '{"a":1}'])(
    'the value of another program in place of the marker is reported and left as it is (%j)',
    async (value) => {
      for (const server of servers) await server.client().set('lock:redlock-node', value);
      const { nodes, redlock } = await opened(3).catch(() => ({ nodes: [], redlock: undefined }));
      await expect(
        redlock?.acquire(['k'], waiting) ?? Promise.reject(new Error('not opened')),
      ).rejects.toThrow(/redlock-node.*has a value that is not a lock of this package|not opened/);
      for (const server of servers) expect(await server.client().get('lock:redlock-node')).toBe(value);
      await Promise.all(nodes.map((node) => node.close()));
    },
  );

  test('keys of another program with the same prefix are neither listed nor changed', async () => {
    const { nodes, redlock } = await opened(1);
    const names = ['lock:', 'lock:k', 'lock:{k', 'lock:k}', 'lock:{k}:other', 'lock:wake:k'];
    for (const name of names) await client.set(name, `of ${name}`);
    await client.set('lock:{theirs}', 'theirs');
    const lock = await redlock.acquire(['k'], waiting);
    const [node] = nodes;
    const states: Record<string, KeyState> = {};
    for await (const page of node!.scan('')) {
      const found = await node!.read(page);
      page.forEach((key, index) => (states[key] = found[index]));
    }
    // A name in braces looks like a lock, and its value is shown to be none.
    expect(states).toMatchObject({ k: { mode: 'exclusive' }, theirs: expect.any(Error) });
    await node!.forceRelease('theirs', ['f'.repeat(32)]);
    await lock.release();
    for (const name of names) expect(await client.get(name)).toBe(`of ${name}`);
    expect(await client.get('lock:{theirs}')).toBe('theirs');
    await Promise.all(nodes.map((each) => each.close()));
  });
});
