import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { acquireOn, releaseOn } from '../../support/ask-store.js';
import { type FakeGateway, startFakeGateway } from '../../support/etcd-gateway.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

const TTL = 60_000;

/** An answer that etcd does not send, so the outcome of the request is unknown. */
const UNUSABLE = 'not from etcd';

(hasEtcd() ? describe : describe.skip)('a waiter that leaves the queue of etcd', () => {
  let server: EtcdServer;
  let gateway: FakeGateway;
  let number = 0;
  let key: string;
  let store: EtcdStore;

  beforeAll(async () => {
    server = await startEtcd();
    gateway = await startFakeGateway(server);
  });

  beforeEach(async () => {
    gateway.intercept = undefined;
    key = `key:${++number}`;
    const holding = new EtcdStore({ endpoints: server.url }, newTerms());
    cleanUpAfterTests(() => holding.close());
    await holding.connect();
    await acquireOn(holding, newLease());
    store = new EtcdStore({ endpoints: `http://${gateway.host}:${gateway.port}` }, newTerms());
    cleanUpAfterTests(() => store.close());
    await store.connect();
  });

  const newLease = (): Lease => new Lease([key], 'me', TTL);

  const newWaiter = (): WaiterId => ({
    ...{ keys: [key], mode: 'exclusive', process: 'p', number: ++number, owner: 'me' },
  });

  const ask = (waiter: WaiterId, lease = newLease()): ReturnType<typeof acquireOn> =>
    acquireOn(store, lease, {
      ...{ ordered: true, renewed: true, position: { waiter, waited: 0, next: undefined } },
    });

  /** The queue of the key: the etcd lease of each entry. */
  const queue = async (): Promise<readonly string[]> =>
    (await server.keys()).filter((each) => each.key.includes(`${key}\0q\0`)).map(({ lease }) => lease);

  test('is removed when etcd answers again after an outage', async () => {
    const waiter = newWaiter();
    expect(await ask(waiter)).toMatchObject({ granted: false });
    expect(await queue()).toHaveLength(1);
    gateway.intercept = () => UNUSABLE;
    await expect(store.leave(waiter)).rejects.toThrow(/answered 200/);
    await until(() => !store.available);
    gateway.intercept = undefined;
    // The entry would expire after a minute.
    await until(async () => (await queue()).length === 0, 30_000);
  });

  test('leaves an entry for a minute at most when its last request arrives late', async () => {
    const [gone, other] = [newWaiter(), newWaiter()];
    expect(await ask(other)).toMatchObject({ granted: false });
    let deliver: (() => Promise<string>) | undefined;
    gateway.intercept = ({ path, pass }) => {
      if (path !== 'kv/txn' || deliver) return undefined;
      deliver = pass;
      return UNUSABLE;
    };
    const lease = newLease();
    await expect(ask(gone, lease)).rejects.toThrow(/answered 200/);
    lease.ended = true;
    await releaseOn(store, lease);
    await store.leave(gone);
    expect(await queue()).toHaveLength(1);
    await deliver!();
    expect(await queue()).toHaveLength(2);
    // The other waiter renews the etcd lease of its entry, and must not renew the one of the late entry.
    expect(await ask(other)).toMatchObject({ granted: false });
    expect(new Set(await queue()).size).toBe(2);
    await store.leave(other);
  });

  test('leaves no entry when it leaves before its last request arrives', async () => {
    const waiter = newWaiter();
    let arrive!: () => void;
    const arrival = new Promise<void>((resolve) => (arrive = resolve));
    let isSent = false;
    gateway.intercept = async ({ path }) => {
      if (path !== 'kv/txn' || isSent) return undefined;
      isSent = true;
      await arrival;
      return undefined;
    };
    const lease = newLease();
    const asking = ask(waiter, lease).catch((error: Error) => error);
    await until(() => isSent);
    lease.ended = true;
    await store.leave(waiter);
    arrive();
    expect(await asking).toBeInstanceOf(Error);
    expect(await queue()).toHaveLength(0);
  });
});
