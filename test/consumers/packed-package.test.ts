import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { publint } from 'publint';
import { startRedis, type RedisServer } from '../support/redis-server.js';
import { ConsumerApp } from './consumer-app.js';
import { formatsOf, isCommand, packPackage, type PackedPackage, sourceFiles } from './packed-package.js';
import { runCommand } from './run-command.js';

// Installing two applications takes its time on a slow connection.
jest.setTimeout(240_000);

let folder: string;
let packed: PackedPackage;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'consumers-'));
  packed = await packPackage(folder);
});

afterAll(() => rm(folder, { recursive: true, force: true }));

describe('the packed package', () => {
  test('contains the library in both formats and nothing else', () => {
    const expected = sourceFiles().flatMap((source) =>
      formatsOf(source).flatMap((format) =>
        (isCommand(source) ? ['js'] : ['js', 'd.ts']).map((ending) => `dist/${format}/${source}.${ending}`),
      ),
    );
    expect(packed.files).toEqual(expect.arrayContaining([...expected, 'dist/cjs/package.json', 'LICENSE']));
    expect(packed.files.filter((path) => !path.startsWith('dist/')).sort()).toEqual(
      expect.arrayContaining(['CHANGELOG.md', 'LICENSE', 'package.json']),
    );
    const foreign = packed.files.filter(
      (path) =>
        !/^(dist\/(esm|cjs)\/.+\.(js|d\.ts)|dist\/cjs\/package\.json)$/.test(path) && path.includes('/'),
    );
    expect(foreign).toEqual([]);
    expect(packed.files.filter((path) => path.includes('/cli/') && !/esm\/cli\/.+\.js$/.test(path))).toEqual(
      [],
    );
  });

  test('is small, and needs nothing but its peers', async () => {
    const { dependencies = {} } = JSON.parse(await readFile('package.json', 'utf8')) as {
      dependencies?: object;
    };
    expect(dependencies).toEqual({});
    const [packedKb, installedKb] = [packed.size, packed.installedSize].map((bytes) =>
      Math.round(bytes / 1_000),
    );
    // For who reads the log of the tests.
    process.stdout.write(`nestjs-redlock: ${packedKb} kB packed, ${installedKb} kB installed\n`);
    expect(packedKb).toBeLessThan(200);
    expect(installedKb).toBeLessThan(1_500);
  });

  test('has nothing that publint objects to', async () => {
    const bytes = await readFile(packed.tarball);
    const tarball = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
    const { messages } = await publint({ pack: { tarball }, strict: true });
    expect(messages).toEqual([]);
  });

  test('gives the right types to every module resolution', async () => {
    // The node16 profile leaves out only `moduleResolution: node10`, which knows no "exports".
    const attw = resolve('node_modules/.bin/attw');
    const args = [
      packed.tarball,
      '--profile',
      'node16',
      '--no-definitely-typed',
      '--format',
      'ascii',
      '--no-emoji',
    ];
    await expect(runCommand(attw, args, { cwd: folder })).resolves.toContain('No problems found');
  });
});

const outcome = {
  built: [{ name: 'daily', keys: ['report:daily'], held: true }, null],
  service: { second: 'refused', error: 'LOCK_HELD', third: 'taken' },
  open: { name: 'daily', locked: true },
  secret: 403,
  fencing: true,
};

/** Once for two instances. The schedule that goes with NestJS 12 is in all other tests. */
const ticks = { 'schedule 5': 1, 'schedule 6': 1 };

describe('applications that install it', () => {
  let redis: RedisServer;
  let nest11: ConsumerApp;
  let nest12: ConsumerApp;

  beforeAll(async () => {
    redis = await startRedis();
    const install = (name: string) => ConsumerApp.install(name, packed.tarball, folder, redis.url);
    [nest11, nest12] = await Promise.all([install('nest-11-cjs'), install('nest-12-esm')]);
    await Promise.all([nest11, nest12].map((app) => app.npm('run', 'build')));
  });

  test('NestJS 11, CommonJS: the built application takes its locks', async () => {
    await expect(nest11.run()).resolves.toEqual({
      ...outcome,
      ticks,
      package: expect.stringMatching(/dist[\\/]esm[\\/]index\.js$/),
    });
  });

  test('NestJS 11, CommonJS: also where require() cannot load ES modules', async () => {
    await expect(nest11.run('--no-experimental-require-module')).resolves.toEqual({
      ...outcome,
      ticks,
      package: expect.stringMatching(/dist[\\/]cjs[\\/]index\.js$/),
    });
  });

  test('NestJS 12, ES modules: the built application takes its locks', async () => {
    await expect(nest12.run()).resolves.toEqual({
      ...outcome,
      package: expect.stringMatching(/dist\/esm\/index\.js$/),
    });
  });

  test('NestJS 11: its default test set-up, Jest with ts-jest, passes', async () => {
    await expect(nest11.npm('test')).resolves.toBeDefined();
  });

  test('NestJS 12: its default test set-up, Vitest, passes', async () => {
    await expect(nest12.npm('test')).resolves.toMatch(/3 passed/);
  });

  test('the command runs, and finds Redis without Nest', async () => {
    for (const app of [nest11, nest12]) {
      await expect(app.npx('nestjs-redlock', '--help')).resolves.toContain('Usage: nestjs-redlock <command>');
    }
    await expect(nest12.npx('redlock', 'list', '--json', '--node', redis.url)).resolves.toBe('[]\n');
  });

  // Two copies would be two classes for each provider, and `instanceof LockHeldError` false for our own error.
  test('require() and import give the same copy', async () => {
    const script = `async function same(entry, name) {
      const [imported, required] = [await import(entry), require(entry)];
      console.log(Object.keys(imported).every((each) => imported[each] === required[each]), name in required);
    }
    void same('nestjs-redlock', 'LockService')
      .then(() => same('nestjs-redlock/fencing', 'FencedRegister'))
      .then(() => same('nestjs-redlock/testing', 'TestLocks'));`;
    for (const app of [nest11, nest12]) {
      await expect(app.node('--input-type=commonjs', '-e', script)).resolves.toBe(
        'true true\ntrue true\ntrue true\n',
      );
    }
  });
});
