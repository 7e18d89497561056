import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { expect, test } from '@jest/globals';
import { cleanUpAfterTests } from './support/leftovers.js';

// The sample and the lab are programs that use the library as other programs do. The configuration of the linter states
// which modules they may import. These tests make files with such imports, and check which the linter refuses.

async function lint(path: string, source: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'programs-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  await cp('.oxlintrc.json', join(folder, '.oxlintrc.json'));
  await mkdir(dirname(join(folder, path)), { recursive: true });
  await writeFile(join(folder, path), source);
  return new Promise((done) => {
    execFile(
      resolve('node_modules/.bin/oxlint'),
      ['--deny-warnings', '.'],
      { cwd: folder },
      (_error, stdout) => done(stdout),
    );
  });
}

const importing = (specifier: string): string =>
  `import { thing } from '${specifier}';\n\nexport const mine = thing;\n`;

test.each([
  ['sample-app/app.module.ts', '../lab/instance/journal.js'],
  ['sample-app/dispatch/dispatch.module.ts', '../../lab/strategies/strategy.dispatcher.js'],
  ['sample-app/build.mjs', '../lab/page/build.mjs'],
  ['sample-app/app.module.ts', '../lib/index.js'],
  ['sample-app/database/schema.ts', '../../lib/fencing/index.js'],
  ['lab/stage.ts', '../lib/index.js'],
  ['lab/stage.ts', '../dist/esm/index.js'],
  ['lab/strategies/with-lock.strategy.ts', '../../lib/stores/redis/record.js'],
  ['lab/page/main.ts', '../../lib/core/ports.js'],
])('the linter refuses an import in %s from %s', async (path, specifier) => {
  await expect(lint(path, importing(specifier))).resolves.toContain('A program beside the library');
});

test.each([
  ['sample-app/app.module.ts', 'nestjs-redlock'],
  ['sample-app/database/schema.ts', 'nestjs-redlock/fencing'],
  ['lab/stage.ts', 'nestjs-redlock'],
  ['lab/stage.ts', '../sample-app/demo/stop-list.js'],
  ['lab/page-server.ts', './lab.js'],
  ['lab/stage.ts', './lab-event.js'],
  ['lab/strategies/strategy.dispatcher.ts', '../../sample-app/dispatch/dispatch.job.js'],
])('the linter allows an import in %s from %s', async (path, specifier) => {
  await expect(lint(path, importing(specifier))).resolves.toContain('Found 0 warnings and 0 errors');
});

// The linter does not check `new URL()`, with which a program names the files of its processes.
test('no file of the sample application refers to the lab', async () => {
  const files = (await readdir('sample-app', { recursive: true })).filter((name) =>
    /\.m?ts$|\.mjs$/.test(name),
  );
  expect(files.length).toBeGreaterThan(30);
  const naming = await Promise.all(
    files.map(async (name) =>
      /['"`][^'"`\n]*\.\.\/lab\//.test(await readFile(join('sample-app', name), 'utf8')) ? [name] : [],
    ),
  );
  expect(naming.flat()).toEqual([]);
});
