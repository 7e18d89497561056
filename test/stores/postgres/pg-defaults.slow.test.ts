import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { defaults, types } from 'pg';
import { Lease } from '../../../lib/core/lease.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';

const TTL = 60_000;

/** Object ids of types whose parser an application may replace, by name. */
const TYPES = { bool: 16, int8: 20, int4: 23, text: 25, json: 114, float8: 701, void: 2278, jsonb: 3802 };

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgresServer();
});

const before = { ...defaults };
const parsers = Object.values(TYPES).map((type) => [type, types.getTypeParser(type, 'text')] as const);
const replaceParsers = (): void => {
  for (const type of Object.values(TYPES)) types.setTypeParser(type, () => 'replaced');
};
const restoreParsers = (): void => {
  for (const [type, parser] of parsers) types.setTypeParser(type, parser);
};

afterEach(() => {
  Object.assign(defaults, before, { parseInt8: false });
  restoreParsers();
});

afterAll(() => server.stop());

test.each([
  ['nothing', {}],
  ['binary results', { binary: true }],
  ['numbers in place of int8 texts', { parseInt8: true }],
  ['a limit of 1 ms for queries', { query_timeout: 1 }],
  ['a limit of 1 ms for statements', { statement_timeout: 1 }],
  [
    'limits of 1 ms for locks and idle transactions',
    { lock_timeout: 1, idle_in_transaction_session_timeout: 1 },
  ],
  ['another encoding', { client_encoding: 'LATIN1' }],
  ['one row at a time', { rows: 1 }],
])('locks work while `pg.defaults` of the application asks for %s', async (_name, settings) => {
  Object.assign(defaults, settings);
  expect(await outcomesOfLocks()).toEqual(OUTCOMES);
});

test('locks work while the application has replaced the parsers of `pg.types`', async () => {
  replaceParsers();
  expect(await outcomesOfLocks()).toEqual(OUTCOMES);
});

const OUTCOMES = {
  subscribed: true,
  checked: { state: 'voting', warnings: [] },
  granted: expect.objectContaining({ granted: true, slots: [expect.any(Number), expect.any(Number)] }),
  extended: true,
  held: [
    expect.objectContaining({ mode: 'permits', holders: [expect.objectContaining({ owner: 'öwner' })] }),
  ],
  waiting: [[]],
  listed: ['kéy', 'other'],
  released: [undefined],
};

async function outcomesOfLocks(): Promise<unknown> {
  // A schema of its own, so that the statements that make the tables run, too.
  const schema = `s${Math.random().toString(36).slice(2)}`;
  const store = new PostgresStore({ connectionString: server.url, schema }, newTerms());
  try {
    await store.connect();
    const { subscribed } = store;
    const checked = await store.check();
    const lease = new Lease(['kéy', 'other'], 'öwner', TTL, undefined, { mode: 'permits', permits: 2 });
    const granted = await acquireOn(store, lease);
    const extended = await extendOn(store, lease, TTL);
    const held = await store.read(['kéy']);
    const waiting = await store.waiting(['kéy']);
    const listed: string[] = [];
    for await (const page of store.scan('')) listed.push(...page);
    await releaseOn(store, lease);
    const released = await store.read(['kéy']);
    return { subscribed, checked, granted, extended, held, waiting, listed, released };
  } finally {
    await store.close();
  }
}
