import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { countLocks, newFleet, redlockOver } from '../../support/core.js';
import { PATIENT } from '../../support/patience.js';
import { startRedis } from '../../support/redis-server.js';
import { until } from '../../support/until.js';

const once: AcquireTerms = { ttl: 1_000, retry: NO_RETRY, renew: false, signals: [] };

test('a store sends few requests to a server that hangs, and acquires locks again when the server answers again', async () => {
  const server = await startRedis();
  const looker = server.client();
  // The client is passed in, so the store does not replace its silent connection.
  const node = new RedisStore(server.client(), false, newFleet());
  await node.connect();
  const [redlock, patient] = [redlockOver([node], { nodeTimeout: 100 }), redlockOver([node], PATIENT)];
  const acquire = () => patient.acquire(['k'], { ...once, ttl: 60_000 });
  await (await acquire()).release();
  await looker.config('RESETSTAT');

  server.pause();
  const refusals: number[] = [];
  for (let attempt = 0; attempt < 100; attempt++) {
    const begun = performance.now();
    await expect(redlock.acquire([`k${attempt}`], once)).rejects.toThrow('Could not lock');
    refusals.push(performance.now() - begun);
  }
  // The first attempts take their whole 100 ms. Later attempts fail at once.
  expect(Math.min(...refusals.slice(50))).toBeLessThan(50);
  await delay(100);
  server.resume();

  await until(async () => (await acquire().catch(() => undefined))?.isHeld() ?? false);
  const [, calls] = /cmdstat_evalsha:calls=(\d+)/.exec(await looker.info('commandstats')) ?? [];
  // Each attempt of the first second or two sends one acquire and one release. 100 attempts would send 200 commands.
  expect(Number(calls)).toBeLessThan(100);
  await until(async () => (await countLocks(looker)) <= 1);
  await node.close();
  await server.stop();
});
