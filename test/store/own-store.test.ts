import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { build } from 'esbuild';
import { LockHeldError, LockService } from '../../lib/index.js';
import { storeContract } from '../../lib/store/index.js';
import { runCommand } from '../consumers/run-command.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { type PostgresServer, startPostgresServer } from '../support/postgres-server.js';
import { sqlTable } from './sql-table.js';
import { TableStore } from './table-store.js';

const HERE = import.meta.dirname;

/** The functions of each runner, as docs/own-store.md imports them. */
const RUNNERS = {
  jest: "import { afterAll, beforeAll, describe, test } from '@jest/globals';",
  vitest: "import { afterAll, beforeAll, describe, test } from 'vitest';",
  'node:test': "import { after as afterAll, before as beforeAll, describe, test } from 'node:test';",
};

/** Makes a folder with the spec for the runner, as JavaScript that includes the library. */
async function specFor(runner: keyof typeof RUNNERS, change = (source: string): string => source) {
  const folder = await mkdtemp(join(tmpdir(), 'own-store-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  await symlink(resolve('node_modules'), join(folder, 'node_modules'));
  const spec = await readFile(join(HERE, 'contract.spec.ts'), 'utf8');
  expect(spec).toContain(RUNNERS['node:test']);
  const contents = change(spec.replace(RUNNERS['node:test'], RUNNERS[runner]));
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: HERE, loader: 'ts' },
    ...{ bundle: true, write: false, platform: 'node', format: 'esm', external: ['vitest'] },
    alias: { 'nestjs-redlock/store': resolve('lib/store/index.ts') },
  });
  await writeFile(join(folder, 'store.test.mjs'), outputFiles[0]?.contents ?? '');
  return folder;
}

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

  storeContract({ describe, test }, 'a table', { modes: ['exclusive'], store: () => store });

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

describe('the contract suite for a third-party store', () => {
  const env = { NO_COLOR: '1' };
  const runs = {
    vitest: (cwd: string) =>
      runCommand(process.execPath, [resolve('node_modules/vitest/vitest.mjs'), 'run'], { cwd, env }),
    'node:test': (cwd: string) =>
      runCommand(process.execPath, ['--test', '--test-reporter=tap', 'store.test.mjs'], { cwd }),
  };

  test('the contract suite for stores passes in Vitest and in node:test', async () => {
    const [vitest, node] = await Promise.all([
      specFor('vitest').then(runs.vitest),
      specFor('node:test').then(runs['node:test']),
    ]);
    expect(vitest).toMatch(/Tests +[5-9]\d passed/);
    expect(node).toMatch(/# pass [5-9]\d\n# fail 0/);
  });

  test('the contract suite for stores fails in Vitest and in node:test for a store with a bug, and names the failed test', async () => {
    // The broken store answers that it has extended lapsed leases.
    const breaking = (source: string): string =>
      source.replace(
        'new TableStore(mapTable())',
        'Object.assign(new TableStore(mapTable()), { extend: (all: [], _: 0, tell: any) => all.forEach((_, at) => tell(at, true)) })',
      );
    const named = /`extend` and `raise` fail for a lease that is not held/;
    await Promise.all([
      expect(specFor('vitest', breaking).then(runs.vitest)).rejects.toThrow(named),
      expect(specFor('node:test', breaking).then(runs['node:test'])).rejects.toThrow(named),
    ]);
  });
});

test('docs/own-store.md shows the same code as the files of this test', async () => {
  const page = await readFile(resolve('docs/own-store.md'), 'utf8');
  const shown = [...page.matchAll(/```(?:ts|typescript)\n(.*?)```/gs)].map(([, code]) => code);
  for (const file of ['table-store.ts', 'map-table.ts', 'sql-table.ts', 'contract.spec.ts']) {
    const source = await readFile(join(HERE, file), 'utf8');
    expect(shown).toContain(source.replace(/^\/\/.*\n/, ''));
  }
  for (const line of Object.values(RUNNERS)) expect(page).toContain(line);
});
