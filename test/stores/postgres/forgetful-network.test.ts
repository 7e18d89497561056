import { Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import { Lease } from '../../../lib/core/lease.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { ForgetfulNetwork } from '../../support/forgetful-network.js';
import { LOOPBACK } from '../../support/free-port.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';

let server: PostgresServer;
let network: ForgetfulNetwork;
let store: PostgresStore;
let terms: ReturnType<typeof newTerms>;

beforeAll(async () => {
  server = await startPostgresServer();
});

afterAll(() => server.stop());

beforeEach(async () => {
  network = new ForgetfulNetwork(server.port);
  terms = newTerms();
  store = new PostgresStore(
    { connectionString: `postgres://postgres@${LOOPBACK}:${await network.port()}/postgres` },
    terms,
  );
});

afterEach(async () => {
  jest.restoreAllMocks();
  await store.close();
  network.close();
});

const MODES = ['silent', 'reset'] as const;

/** `true` if the store has replaced its connections within the second after which it reports a loss. */
const isReplacedSoon = (): boolean => performance.now() - network.usedAt < 1_000;

test.each(MODES)(
  'the first requests succeed over a new connection, and no loss is reported, when the network has forgotten the idle connections (%s)',
  async (mode) => {
    await store.connect();
    const held = new Lease([`held ${mode}`], 'me', 60_000);
    const released = new Lease([`released ${mode}`], 'me', 60_000);
    for (const lease of [held, released]) await acquireOn(store, lease);
    // The store's own test of the connection, once a second, is traffic, too. A network forgets connections without traffic.
    await until(() => store.idle);
    network.forget(mode);
    const acquired = new Lease([`acquired ${mode}`], 'me', 60_000);
    const [reply, extended] = await Promise.all([
      acquireOn(store, acquired, { limit: 2_000 }),
      extendOn(store, held, 60_000),
      releaseOn(store, released),
    ]);
    const isQuick = isReplacedSoon();
    expect(reply).toMatchObject({ granted: true });
    expect(extended).toBe(true);
    expect(await store.read([held, acquired, released].map(({ keys }) => keys[0] ?? ''))).toEqual([
      expect.objectContaining({ mode: 'exclusive' }),
      expect.objectContaining({ mode: 'exclusive' }),
      undefined,
    ]);
    expect(isQuick ? terms.events : ['ready']).toEqual(['ready']);
    // The connection for messages was idle, too, and is replaced without a request on it.
    await until(() => store.subscribed);
  },
);

test.each(MODES)('forgotten connections are replaced while nobody uses them (%s)', async (mode) => {
  // The first sweep would use the connection. With this number it comes after a minute.
  jest.spyOn(Math, 'random').mockReturnValue(6);
  await store.connect();
  const looker = await server.client();
  const connections = async (): Promise<number[]> => {
    const found = await looker.query<{ pid: number }>(
      "select pid from pg_stat_activity where application_name = 'nestjs-redlock'",
    );
    return found.rows.map(({ pid }) => pid);
  };
  const forgotten = await connections();
  network.forget(mode);
  const isNew = (pid: number): boolean => !forgotten.includes(pid);
  // On a busy machine a replaced connection may be replaced once more.
  await until(async () => (await connections()).filter(isNew).length >= 2, 50_000);
  await until(() => store.available);
  const isQuick = isReplacedSoon();
  await until(() => store.subscribed);
  expect(isQuick ? terms.events : ['ready']).toEqual(['ready']);
});

test('every connection asks TCP to check it after seconds without traffic', async () => {
  const keepAlive = jest.spyOn(Socket.prototype, 'setKeepAlive');
  await store.connect();
  for await (const page of store.scan('')) void page;
  const asked = keepAlive.mock.calls.filter(([isOn]) => isOn);
  expect(asked.length).toBeGreaterThanOrEqual(3);
  for (const [, after] of asked) expect(after).toBeLessThanOrEqual(10_000);
});
