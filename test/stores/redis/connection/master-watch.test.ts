import { afterEach, expect, test } from '@jest/globals';
import type { Redis, RedisOptions } from 'ioredis';
import type { ServerAddress } from '../../../../lib/stores/redis/connection/driver.js';
import type { MasterAddress } from '../../../../lib/stores/redis/connection/master-address.js';
import { MasterWatch } from '../../../../lib/stores/redis/connection/master-watch.js';
import { type RedisServer, startRedis } from '../../../support/redis-server.js';
import { until } from '../../../support/until.js';

// These Sentinels name masters that do not run.

const watches: MasterWatch[] = [];
afterEach(() => {
  for (const watch of watches.splice(0)) watch.end();
});

function startSentinel(port: number, ...config: string[]): Promise<RedisServer> {
  const lines = [`sentinel monitor locks 127.0.0.1 ${port} 1`, ...config, ''];
  return startRedis({ args: ['--sentinel'], config: lines.join('\n') });
}

function clientOf(sentinel: RedisServer, { sentinelPassword }: RedisOptions = {}): Redis {
  return sentinel.client(sentinelPassword ? { password: sentinelPassword } : {});
}

/** Makes the Sentinel name another master from now on. */
async function change(
  sentinel: RedisServer,
  to: number | ServerAddress,
  options?: RedisOptions,
): Promise<void> {
  const { host, port } = typeof to === 'number' ? { host: '127.0.0.1', port: to } : to;
  const client = clientOf(sentinel, options);
  await client.call('SENTINEL', 'REMOVE', 'locks');
  await client.call('SENTINEL', 'MONITOR', 'locks', host, port, 1);
}

interface Watched {
  readonly watch: MasterWatch;
  readonly client: { status: string };
  readonly told: readonly MasterAddress[];
}

/** A watch that has asked each of the Sentinels. */
async function watchOver(sentinels: readonly RedisServer[], options: RedisOptions = {}): Promise<Watched> {
  const client = { status: 'ready', options: { name: 'locks', ...options, sentinels } };
  const told: MasterAddress[] = [];
  const watch = new MasterWatch(client as unknown as Redis, (master) => told.push(master));
  watches.push(watch);
  watch.begin();
  for (const sentinel of sentinels) {
    const looker = clientOf(sentinel, options);
    const asked = async (): Promise<unknown[]> =>
      String(await looker.client('LIST')).match(/name=nestjs-redlock-sentinel .*cmd=sentinel/gi) ?? [];
    await until(async () => (await asked()).length === watches.length);
  }
  return { watch, client, told };
}

test('a MasterWatch reports each new master that a Sentinel names, and ignores differences between Sentinels', async () => {
  const [leading, behind] = await Promise.all([startSentinel(7_001), startSentinel(7_002)]);
  const { told } = await watchOver([behind, leading]);
  await change(leading, 7_003);
  await until(() => told.length === 1);
  await change(leading, 7_004);
  await until(() => told.length === 2);
  await change(behind, 7_004);
  await until(() => told.length === 3);
  expect(told.map(({ port }) => port)).toEqual([7_003, 7_004, 7_004]);
});

test('a MasterWatch that finds a new master while its client connects reports that master only when the client is ready', async () => {
  const sentinel = await startSentinel(7_001);
  const [connecting, ready] = [await watchOver([sentinel]), await watchOver([sentinel])];
  connecting.client.status = 'connecting';
  for (const port of [7_002, 7_003, 7_004]) {
    await change(sentinel, port);
    await until(() => ready.told.at(-1)?.port === port);
  }
  expect(connecting.told).toEqual([]);
  connecting.client.status = 'ready';
  connecting.watch.begin();
  expect(connecting.told).toEqual([{ ips: ['127.0.0.1'], port: expect.any(Number) }]);
});

test.each([
  ['an object', { '127.0.0.1:7002': { host: '10.0.0.1', port: 6_379 } }],
  [
    'a function',
    (address: string) => (address === '127.0.0.1:7002' ? { host: '10.0.0.1', port: 6_379 } : null),
  ],
])(
  'a MasterWatch reports the address that the natMap gives for the master if the natMap is %s',
  async (_what, natMap) => {
    const sentinel = await startSentinel(7_001);
    const { told } = await watchOver([sentinel], { natMap });
    await change(sentinel, 7_002);
    await until(() => told.length > 0);
    expect(told).toEqual([{ ips: ['10.0.0.1'], port: 6_379 }]);
  },
);

test('a MasterWatch connects to Sentinels that need a password', async () => {
  const sentinel = await startSentinel(7_001, 'requirepass secret');
  const options = { sentinelPassword: 'secret' };
  const { told } = await watchOver([sentinel], options);
  await change(sentinel, 7_002, options);
  await until(() => told.length > 0);
  expect(told).toEqual([{ ips: ['127.0.0.1'], port: 7_002 }]);
});

test('a MasterWatch resolves the host name of a master, and ignores a name that does not resolve', async () => {
  const sentinel = await startSentinel(
    7_001,
    'sentinel resolve-hostnames yes',
    'sentinel announce-hostnames yes',
  );
  // A label of a host name has at most 63 characters, so the lookup of this name fails at once.
  const natMap = { 'localhost:7002': { host: 'x'.repeat(64), port: 7_002 } };
  const { told } = await watchOver([sentinel], { natMap });
  await change(sentinel, { host: 'localhost', port: 7_002 });
  await change(sentinel, { host: 'localhost', port: 7_003 });
  await until(() => told.length > 0);
  expect(told).toEqual([{ ips: expect.arrayContaining(['127.0.0.1']), port: 7_003 }]);
});
