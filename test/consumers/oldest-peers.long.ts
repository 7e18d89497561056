import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, jest, test } from '@jest/globals';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startRedis } from '../support/redis-server.js';
import { ConsumerApp } from './consumer-app.js';
import { onNest11, outcome } from './outcome.js';
import { packPackage } from './packed-package.js';

// Installing an application twice takes long on a slow connection.
jest.setTimeout(1_200_000);

test.each([
  [11, 'nest-11-cjs'],
  [12, 'nest-12-esm'],
])(
  'an application on NestJS %d acquires its locks with the oldest allowed versions of the peer dependencies',
  async (major, name) => {
    const folder = await mkdtemp(join(tmpdir(), 'oldest-peers-'));
    cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
    const redis = await startRedis();
    const { tarball } = await packPackage(folder);
    const app = await ConsumerApp.install(name, tarball, folder, redis.url);
    await app.npm('run', 'build');
    const { peerDependencies } = JSON.parse(await readFile('package.json', 'utf8')) as {
      peerDependencies: Record<string, string>;
    };
    const oldest = (peer: string): string => {
      const versions = (peerDependencies[peer] ?? '').split(' || ').map((range) => range.replace('^', ''));
      const version = (major === 11 ? versions[0] : versions.at(-1)) ?? '';
      // NestJS 12.0.0 cannot be installed: its core asks for version 11 of common.
      return `${peer}@${version.replace('12.0.0', '12.0.1')}`;
    };
    const ours = ['@nestjs/common', '@nestjs/core', 'ioredis', 'reflect-metadata', 'rxjs'].map(oldest);
    const more = major === 11 ? [oldest('@nestjs/terminus')] : [];
    const options = ['--no-save', '--no-package-lock', '--prefer-offline', '--no-audit', '--no-fund'];
    const express = oldest('@nestjs/core').replace('core', 'platform-express');
    await app.npm('install', ...options, ...ours, ...more, express);
    await expect(app.run()).resolves.toEqual({
      ...outcome,
      ...(major === 11 ? onNest11 : {}),
      package: expect.stringContaining('nestjs-redlock'),
    });
  },
);
