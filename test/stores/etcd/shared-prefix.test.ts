import { beforeAll, describe, expect, test } from '@jest/globals';
import { UnfitStoreError } from '../../../lib/core/errors.js';
import { Lease } from '../../../lib/core/lease.js';
import type { AcquireTerms } from '../../../lib/redlock/redlock.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { redlockOver } from '../../support/core.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';

// Another program uses the same prefix in etcd.

const waiting: AcquireTerms = {
  ttl: 60_000,
  renew: true,
  signals: [],
  retry: { timeout: 50_000, attempts: Infinity, delay: 20, jitter: 20 },
};

const base64 = (text: string): string => Buffer.from(text).toString('base64');

(hasEtcd() ? describe : describe.skip)('an etcd prefix that another program also uses', () => {
  let server: EtcdServer;

  beforeAll(async () => {
    server = await startEtcd();
  });

  async function put(key: string, value: string): Promise<void> {
    await server.call('kv/put', { key: base64(key), value: base64(value) });
  }

  async function valueOf(key: string): Promise<string | undefined> {
    const { kvs = [] } = await server.call<{ kvs?: { value?: string }[] }>('kv/range', { key: base64(key) });
    return kvs[0] && Buffer.from(kvs[0].value ?? '', 'base64').toString();
  }

  function newStore(prefix: string): EtcdStore {
    const store = new EtcdStore({ endpoints: server.url, prefix }, newTerms());
    cleanUpAfterTests(() => store.close());
    return store;
  }

  test.each(['', '42', 'https://example.org', '{"value":1}', '1883001283589384'])(
    'the start is refused with the remedy, and the key `base` keeps its value (%j)',
    async (value) => {
      const prefix = `shared-${base64(value)}/`;
      await put(`${prefix}base`, value);
      const store = newStore(prefix);
      const refused = await store.connect().then(
        () => undefined,
        (error: unknown) => error,
      );
      expect(refused).toBeInstanceOf(UnfitStoreError);
      expect((refused as Error).message).toContain(
        `${prefix}base in etcd has a value that is not of this package`,
      );
      expect((refused as Error).message).toContain('another `prefix`');
      expect(await valueOf(`${prefix}base`)).toBe(value);
    },
  );

  test('a base that another program overwrites later ends a call at once, and is left as it is', async () => {
    const store = newStore('overwritten/');
    await store.connect();
    const redlock = redlockOver([store], PATIENT);
    await put('overwritten/base', 'theirs');
    const began = performance.now();
    await expect(redlock.acquire(['key'], waiting)).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
      message: expect.stringContaining('overwritten/base in etcd has a value that is not of this package'),
    });
    expect(performance.now() - began).toBeLessThan(waiting.retry.timeout / 2);
    expect(await valueOf('overwritten/base')).toBe('theirs');
    await redlock.close();
  });

  test.each(['theirs', '{}', '{"o":1,"s":0,"n":0,"b":0}', 'null'])(
    'a value of another program in place of a holder ends a call at once, and is left as it is (%j)',
    async (value) => {
      const prefix = `holder-${base64(value)}/`;
      const store = newStore(prefix);
      await store.connect();
      const redlock = redlockOver([store], PATIENT);
      const { id } = new Lease(['key'], 'them', 2_000);
      const name = `${prefix}lock/lock:key\0h\0e${id}`;
      await put(name, value);
      const began = performance.now();
      await expect(redlock.acquire(['key'], waiting)).rejects.toMatchObject({
        code: 'LOCK_UNAVAILABLE',
        message: expect.stringContaining('in etcd has a value that is not of this package'),
      });
      expect(performance.now() - began).toBeLessThan(waiting.retry.timeout / 2);
      await expect(store.forceRelease('key', [id])).rejects.toThrow('is not of this package');
      expect(await valueOf(name)).toBe(value);
      // The other keys of the prefix are not affected.
      const other = await redlock.acquire(['other'], waiting);
      await other.release();
      await redlock.close();
    },
  );

  test('keys of another program with the same prefix are neither listed nor changed', async () => {
    const names = [
      'beside/',
      'beside/lock',
      'beside/lock/',
      'beside/lock/lock:key',
      'beside/lock/lock:key/sub',
      'beside/fence',
    ];
    for (const name of names) await put(name, `of ${name}`);
    const store = newStore('beside/');
    await store.connect();
    const redlock = redlockOver([store], PATIENT);
    const lock = await redlock.acquire(['key'], waiting);
    const listed: string[] = [];
    for await (const page of store.scan('')) listed.push(...page);
    expect(listed).toEqual(['key']);
    expect(await store.forceRelease('key', ['f'.repeat(32)])).toEqual([]);
    await lock.release();
    await redlock.close();
    for (const name of names) expect(await valueOf(name)).toBe(`of ${name}`);
  });

  test('the warnings of a health check name no address of a member', async () => {
    const away = 'http://localhost:1';
    const store = new EtcdStore({ endpoints: [server.url, away] }, newTerms());
    cleanUpAfterTests(() => store.close());
    await store.connect();
    const { state, warnings } = await store.check();
    expect(state).toBe('voting');
    expect(warnings.join()).toContain('member 2 of `endpoints` does not answer');
    expect(warnings.join()).not.toMatch(/localhost|127\.0\.0\.1|::1|:\d+/);
  });
});
