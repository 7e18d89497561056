import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { LockHeldError, LockService } from '../../lib/index.js';
import { storeContract } from '../../lib/store/index.js';
import { sideBySide } from '../contract/side-by-side.js';
import { startApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { type PostgresServer, startPostgresServer } from '../support/postgres-server.js';
import { sqlTable } from './sql-table.js';
import { TableStore } from './table-store.js';

describe('a third-party store on a database table', () => {
  let server: PostgresServer;
  let store: TableStore;

  beforeAll(async () => {
    server = await startPostgresServer();
    store = new TableStore(sqlTable(server.url));
    await store.connect();
  });
  afterAll(async () => {
    await store.close();
    await server.stop();
  });

  storeContract(sideBySide, 'a table', { modes: ['exclusive'], store: () => store });

  test('two applications over a third-party store exclude each other, wait for locks, and show and force-release locks', async () => {
    const [one, another] = (await Promise.all(
      ['one', 'another'].map(async (owner) => {
        const app = await startApp(
          {},
          { nodes: new TableStore(sqlTable(server.url)), owner, defaults: { ttl: 60_000 }, ...PATIENT },
        );
        return app.get(LockService);
      }),
    )) as [LockService, LockService];
    const lock = await one.acquire('order:1');
    await expect(another.acquire('order:1', { retry: false })).rejects.toBeInstanceOf(LockHeldError);
    await expect(another.inspect('order:1')).resolves.toMatchObject({
      held: true,
      owner: 'one',
      id: lock.id,
    });
    const waits = another.acquire('order:1', { retry: { timeout: 60_000, delay: 20 } });
    await lock.extend();
    await lock.release();
    await using next = await waits;
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    await expect(another.acquire('order:1', { mode: 'shared' })).rejects.toThrow(
      "my table cannot store a lock in the mode 'shared', only in 'exclusive'",
    );
    const listed: string[] = [];
    for await (const { key } of one.list({ prefix: 'order:' })) listed.push(key);
    expect(listed).toEqual(['order:1']);
    await expect(one.forceRelease('order:1')).resolves.toBe(true);
    await expect(one.inspect('order:1')).resolves.toMatchObject({ held: false });
  });
});

test('docs/own-store.md shows the same code as the files of this test', async () => {
  const page = await readFile(resolve('docs/own-store.md'), 'utf8');
  const shown = [...page.matchAll(/```(?:ts|typescript)\n(.*?)```/gs)].map(([, code]) => code);
  for (const file of ['table-store.ts', 'map-table.ts', 'sql-table.ts', 'contract.spec.ts']) {
    const source = await readFile(join(import.meta.dirname, file), 'utf8');
    expect(shown).toContain(source.replace(/^\/\/.*\n/, ''));
  }
});
