import { describe, expect, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { acquireOn, extendOn } from '../../support/ask-store.js';
import { hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { newTerms } from '../../support/postgres-store.js';

const TTL = 60_000;

(hasEtcd() ? describe : describe.skip)('a lock of etcd that another thread has extended', () => {
  test('is moved to another etcd lease once, if that thread may still move it', async () => {
    const server = await startEtcd();
    const store = new EtcdStore({ endpoints: server.url }, newTerms());
    cleanUpAfterTests(() => store.close());
    await store.connect();
    const lease = new Lease(['key'], 'me', TTL);
    await acquireOn(store, lease, { renewed: true });
    lease.lent = 'certain';
    const extend = async (): Promise<string | undefined> => {
      expect(await extendOn(store, lease, TTL)).toBe(true);
      return (await server.keys()).find(({ key }) => key.includes(lease.id))?.lease;
    };
    const before = await extend();
    // The transaction of the other thread compares with the present state of the keys.
    lease.lent = 'in doubt';
    const moved = await extend();
    const after = await extend();
    expect(before).toBeDefined();
    expect(moved).not.toBe(before);
    expect(after).toBe(moved);
    await store.close();
    await server.stop();
  });
});
