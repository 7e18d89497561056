import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { build } from 'esbuild';
import { runCommand } from '../consumers/run-command.js';
import { cleanUpAfterTests } from '../support/leftovers.js';

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
  const spec = await readFile(join(import.meta.dirname, 'contract.spec.ts'), 'utf8');
  expect(spec).toContain(RUNNERS['node:test']);
  const contents = change(spec.replace(RUNNERS['node:test'], RUNNERS[runner]));
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: import.meta.dirname, loader: 'ts' },
    ...{ bundle: true, write: false, platform: 'node', format: 'esm', external: ['vitest'] },
    alias: { 'nestjs-redlock/store': resolve('lib/store/index.ts') },
  });
  await writeFile(join(folder, 'store.test.mjs'), outputFiles[0]?.contents ?? '');
  return folder;
}

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

test('docs/own-store.md shows the import of each runner', async () => {
  const page = await readFile(resolve('docs/own-store.md'), 'utf8');
  for (const line of Object.values(RUNNERS)) expect(page).toContain(line);
});
