import 'reflect-metadata';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { once } from 'node:events';
import type { Redis } from 'ioredis';
import { Leader, type LeaderTerm, type LockHandle, LockService, RedlockModule } from '../../../lib/index.js';
import { countLocks, heldKeys, holdersWithoutRecord } from '../../support/core.js';
import { startPlainApp } from '../../support/nest-app.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedisNodes } from '../../support/redis-server.js';
import { until } from '../../support/until.js';

/** So long that on a busy machine a renewal may be seconds late. The restart guard has the same length. */
const TTL = 4_000;

@Injectable()
class Indexer {
  readonly terms: LeaderTerm[] = [];

  @Leader('indexer', { ttl: TTL })
  async lead(term: LeaderTerm): Promise<void> {
    this.terms.push(term);
    if (!term.signal.aborted) await once(term.signal, 'abort');
  }
}

let servers: RedisServer[];
let lookers: Redis[];
beforeAll(async () => {
  servers = await startRedisNodes(3);
  lookers = servers.map((server) => server.client());
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));

test('restarts of all nodes without data, one at a time, lose no lock of any kind and no leader, and leave nothing after the release', async () => {
  const restartGuard = TTL;
  const app = await startPlainApp({
    imports: [
      RedlockModule.forRoot({
        nodes: servers.map(({ url }) => url),
        restartGuard,
        waitForQuorum: 30_000,
        ...PATIENT,
      }),
    ],
    providers: [Indexer],
  });
  const { terms } = app.get(Indexer);
  const locks = app.get(LockService);
  // The third node misses the acquisitions.
  await servers[2]?.kill();
  const held: LockHandle[] = await Promise.all([
    locks.acquire('one', { ttl: TTL }),
    locks.acquire(['{several}:a', '{several}:b'], { ttl: TTL }),
    locks.acquire('read', { ttl: TTL, mode: 'shared' }),
    locks.acquire('read', { ttl: TTL, mode: 'shared' }),
    locks.acquire('slots', { ttl: TTL, permits: 3 }),
    locks.acquire('slots', { ttl: TTL, permits: 3 }),
  ]);
  await until(() => terms.length === 1);
  const all = await heldKeys(lookers[0] as Redis);
  expect(all).toHaveLength(6);
  const isStoredOn = async (looker: Redis): Promise<boolean> =>
    (await heldKeys(looker)).length === all.length &&
    // The record names the reader that ends last, and the set has the other reader.
    (await looker.zcard('lock:{read}:h')) === 1 &&
    (await looker.zcard('lock:{slots}:h')) === 2;
  await servers[2]?.start();
  for (const index of [2, 0, 1]) {
    if (index !== 2) await servers[index]?.restart();
    await until(() => isStoredOn(lookers[index] as Redis));
    expect([...held, ...terms].filter(({ signal }) => signal.aborted)).toEqual([]);
  }
  const slots = await Promise.all(
    lookers.map(async (looker) => (await looker.hgetall('lock:{slots}:s')) as Record<string, string>),
  );
  for (const { id, slot } of held.slice(4))
    expect(slots.map((details) => details[id]?.slice(17, 21))).toEqual(
      lookers.map(() => String(slot).padStart(4, '0')),
    );
  await Promise.all(held.map((lock) => lock.release()));
  await app.close();
  await until(async () => (await Promise.all(lookers.map(countLocks))).every((count) => count === 0));
  expect((await Promise.all(lookers.map(holdersWithoutRecord))).flat()).toEqual([]);
});
