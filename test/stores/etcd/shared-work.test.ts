import { beforeAll, describe, expect, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { acquireOn } from '../../support/ask-store.js';
import { startFakeGateway } from '../../support/etcd-gateway.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

(hasEtcd() ? describe : describe.skip)('a request that several calls need', () => {
  let server: EtcdServer;

  beforeAll(async () => {
    server = await startEtcd();
  });

  test.each([
    ['the grant of an etcd lease', 'lease/grant', true],
    ['the number that is added to revisions', 'kv/txn', false],
  ])('fails only the call whose time is over: %s', async (_, path, renewed) => {
    const gateway = await startFakeGateway(server);
    // A store that only looks does not read the number when it connects.
    const terms = { ...newTerms(), looksOnly: true };
    const store = new EtcdStore({ endpoints: `http://${gateway.host}:${gateway.port}` }, terms);
    cleanUpAfterTests(() => store.close());
    await store.connect();
    let isLost = false;
    gateway.intercept = (request) => {
      if (request.path !== path || isLost) return undefined;
      isLost = true;
      return null;
    };
    const acquire = (key: string, limit: number): ReturnType<typeof acquireOn> =>
      acquireOn(store, new Lease([`${path}:${key}`], 'me', 60_000), { renewed, limit });
    const hasty = acquire('hasty', 2_000).catch((error: Error) => error);
    await until(() => isLost);
    const patient = acquire('patient', 60_000);
    expect(await hasty).toBeInstanceOf(Error);
    expect(await patient).toMatchObject({ granted: true });
  });
});
