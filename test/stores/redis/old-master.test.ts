import { expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { Lease } from '../../../lib/core/lease.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { heldKeys, newFleet } from '../../support/core.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { DURABLE, type RedisServer, startRedis } from '../../support/redis-server.js';
import { until } from '../../support/until.js';

const TTL = 60_000;

/** A connected store over a passed-in client, which gets the address of its master from this Sentinel. */
async function storeOver({ host, port }: RedisServer): Promise<RedisStore> {
  const client = new Redis({ sentinels: [{ host, port }], name: 'locks' });
  cleanUpAfterTests(async () => client.disconnect());
  client.on('error', () => undefined);
  const store = new RedisStore(client, false, newFleet());
  cleanUpAfterTests(() => store.close());
  await store.connect();
  return store;
}

const leaseOn = (key: string): Lease => new Lease([key], 'me', TTL);

test('an answer of a master does not count after a Sentinel has replaced that master', async () => {
  const server = await startRedis();
  const sentinel = await startRedis({
    args: ['--sentinel'],
    config: `sentinel monitor locks ${server.host} ${server.port} 1\n`,
  });
  const store = await storeOver(sentinel);
  const [held, other, released] = [leaseOn('held'), leaseOn('other'), leaseOn('released')];
  for (const lease of [held, released]) await acquireOn(store, lease);

  server.pause();
  const answers = Promise.allSettled([
    extendOn(store, held, TTL),
    acquireOn(store, other, { limit: TTL }),
    store.raise(held, Number.MAX_SAFE_INTEGER),
    releaseOn(store, released),
  ]);
  const looker = sentinel.client();
  await looker.call('SENTINEL', 'REMOVE', 'locks');
  await looker.call('SENTINEL', 'MONITOR', 'locks', server.host, server.port + 1, 1);
  // Wait until the store knows of the new master: from then on it refuses every renewal at once.
  let reply: boolean | Error | undefined;
  await until(() => {
    store.extend([leaseOn('probe')], TTL, (_, answer) => (reply = answer));
    return reply === false;
  });
  server.resume();

  const refused = {
    status: 'rejected',
    reason: expect.objectContaining({
      message: expect.stringContaining('still connected to a former master'),
    }),
  };
  expect(await answers).toEqual([{ status: 'fulfilled', value: false }, refused, refused, refused]);
  // The old master has carried out the requests.
  expect(await heldKeys(server.client())).toEqual(expect.arrayContaining(['lock:{held}', 'lock:{other}']));
});

test('a store uses a passed-in client again when Sentinels that announce host names report the old master again', async () => {
  const server = await startRedis();
  const sentinel = await startRedis({
    args: ['--sentinel'],
    config: [
      'sentinel resolve-hostnames yes',
      'sentinel announce-hostnames yes',
      `sentinel monitor locks localhost ${server.port} 1`,
      '',
    ].join('\n'),
  });
  const store = await storeOver(sentinel);
  const looker = sentinel.client();
  const name = async (port: number): Promise<void> => {
    await looker.call('SENTINEL', 'REMOVE', 'locks');
    await looker.call('SENTINEL', 'MONITOR', 'locks', 'localhost', port, 1);
  };
  const lease = leaseOn('held');
  await acquireOn(store, lease);

  await name(server.port + 1);
  await until(async () => !(await extendOn(store, lease, TTL)));
  await name(server.port);
  await until(() => extendOn(store, lease, TTL));
  await expect(acquireOn(store, leaseOn('other'))).resolves.toMatchObject({ granted: true });
});

test.each([true, false])(
  'a store warns that a passed-in client stays connected to a demoted master, unless it reconnects (%s)',
  async (reconnects) => {
    const [server, master] = await Promise.all([startRedis(DURABLE), startRedis()]);
    const fleet = newFleet();
    const client = server.client(
      reconnects ? { reconnectOnError: ({ message }) => message.startsWith('READONLY') } : {},
    );
    const store = new RedisStore(client, false, fleet);
    cleanUpAfterTests(() => store.close());
    await store.connect();
    await server.client().replicaof(master.host, master.port);
    await expect(acquireOn(store, leaseOn('k'))).rejects.toThrow('READONLY');
    const advice = expect.stringContaining('set `reconnectOnError:');
    expect(fleet.warnings).toEqual(reconnects ? [] : [advice]);
    await store.close();
    await Promise.all([server.stop(), master.stop()]);
  },
);
