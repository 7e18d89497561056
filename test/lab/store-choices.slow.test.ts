import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { findStores, problemOfTtl, type StoreChoice } from '../../lab/store-choices.js';

/** Finds the stores in a process of its own, whose PATH has no etcd. */
async function storesWithoutEtcd(preferred: string): Promise<StoreChoice[]> {
  const compiled = new URL('../../dist/lab/store-choices.js', import.meta.url).href;
  const script = `const { findStores } = await import('${compiled}');
    const stores = await findStores('${preferred}').catch(({ message }) => ({ message }));
    console.log(JSON.stringify(stores));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
    env: { ...process.env, PATH: '/nowhere' },
  });
  return JSON.parse(stdout) as StoreChoice[];
}

test('findStores lists etcd with installation advice when etcd is not on the PATH', async () => {
  const stores = await storesWithoutEtcd('redis');

  expect(stores.map(({ name }) => name)).toEqual([
    'redis-5',
    'redis-3',
    'redis-1',
    'postgres',
    'mysql',
    'etcd',
    'zookeeper',
  ]);
  expect(stores.find(({ name }) => name === 'etcd')?.missing).toMatch(/^There is no etcd .*apt-get install/);
  expect(stores.find(({ name }) => name === 'zookeeper')?.missing).toMatch(/no java .*apt-get install/);
  // Debian's MariaDB is in /usr/sbin, which is searched besides the PATH.
  const others = stores.filter(({ name }) => name !== 'mysql');
  expect(others.filter(({ missing }) => missing === undefined)).toHaveLength(4);
  expect(stores.filter(({ preselected }) => preselected).map(({ name }) => name)).toEqual(['redis-5']);
});

test('findStores rejects with installation advice when etcd is preferred and not on the PATH', async () => {
  expect(await storesWithoutEtcd('etcd')).toEqual({
    message: expect.stringMatching(/^There is no etcd on the PATH: install one .*\.$/),
  });
});

test('findStores preselects only the preferred store', async () => {
  const stores = await findStores('postgres');

  expect(stores.filter(({ preselected }) => preselected).map(({ name }) => name)).toEqual(['postgres']);
});

test.each([
  ['redis', 1_500],
  ['postgres', 1_500],
  ['etcd', 2_000],
  ['etcd', 3_000],
] as const)('the playground on %s accepts a ttl of %i ms', (store, ttl) => {
  expect(problemOfTtl(store, ttl)).toBeUndefined();
});

test.each([1_000, 2_500])('the playground on etcd refuses a ttl of %i ms', (ttl) => {
  expect(problemOfTtl('etcd', ttl)).toMatch(
    new RegExp(`multiple of 1000 ms, at least 2000, for etcd, got ${ttl}`),
  );
});
