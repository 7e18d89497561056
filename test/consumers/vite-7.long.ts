import { expect, jest, test } from '@jest/globals';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { ConsumerApp } from './consumer-app.js';
import { packPackage } from './packed-package.js';
import { testingPage } from './testing-page.js';

// Installing takes long on a slow connection.
jest.setTimeout(600_000);

const VITEST = ['vitest', 'run', 'src/orders.spec.ts', '--testTimeout', '60000'] as const;

test('the spec of docs/testing.md passes on Vite 7 only with the configuration of that page', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'vite-7-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  const { tarball } = await packPackage(folder);
  const { spec, config } = testingPage();
  const app = await ConsumerApp.install('nest-12-esm', tarball, folder, '');
  await app.write('src/orders.spec.ts', spec);
  const options = ['--no-save', '--no-package-lock', '--prefer-offline', '--no-audit', '--no-fund'];
  await app.npm('install', ...options, 'vite@7', 'unplugin-swc', '@swc/core');
  await expect(app.npx(...VITEST)).rejects.toThrow(/TypeError.*Cannot read properties of undefined/);
  await app.write('vitest.config.mjs', config);
  await expect(app.npx(...VITEST, '--config', 'vitest.config.mjs')).resolves.toMatch(/6 passed/);
});
