import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { startRedis } from '../support/redis-server.js';
import { ConsumerApp } from './consumer-app.js';
import { onNest11, outcome } from './outcome.js';
import { packPackage } from './packed-package.js';

// Installing an application takes long on a slow connection.
jest.setTimeout(600_000);

let folder: string;
let app: ConsumerApp;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'bundlers-'));
  const redis = await startRedis();
  const { tarball } = await packPackage(folder);
  app = await ConsumerApp.install('nest-11-cjs', tarball, folder, redis.url);
  const options = ['--no-save', '--no-package-lock', '--prefer-offline', '--no-audit', '--no-fund'];
  await app.npm('install', ...options, '@nestjs/cli@11', 'ts-loader@9', '@swc/cli', '@swc/core');
  await app.write('nest-cli.json', '{"sourceRoot":"src","compilerOptions":{"deleteOutDir":true}}\n');
});

afterAll(() => rm(folder, { recursive: true, force: true }));

test.each(['webpack', 'swc'])(
  'a thread keeps a lock while the event loop is blocked, in a program that `nest build --builder %s` makes',
  async (builder) => {
    await app.npx('nest', 'build', '--builder', builder);
    // Webpack puts a number in the place of the path of the package.
    await expect(app.run()).resolves.toEqual({ ...outcome, ...onNest11, package: expect.anything() });
  },
);
