import { execFile } from 'node:child_process';
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from '@jest/globals';

const run = promisify(execFile);

/**
 * Packages that ask for Node 22 and also work on Node 20. `file-type` is a dependency of NestJS 12. The demo runs the
 * other two on a machine without a Redis. No version of these packages declares support for Node 20, so `.npmrc` hides
 * the warnings.
 */
const WANTS_NODE_22 = ['file-type', 'js-redis-server', 'lua-redis-wasm'];

const onNode20 = Number(process.versions.node.split('.')[0]) < 22;

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'install-'));
  for (const name of ['package.json', 'package-lock.json', '.npmrc'])
    await copyFile(name, join(folder, name));
  await writeFile(join(folder, 'nobodys.npmrc'), '');
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Runs `npm ci` without the npm settings of this machine; returns its warnings. */
async function warnings(...options: string[]): Promise<string[]> {
  const args = ['ci', '--dry-run', '--offline', '--no-audit', '--userconfig', 'nobodys.npmrc', ...options];
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)));
  const { stdout, stderr } = await run('npm', args, { cwd: folder, env });
  expect(stdout).toMatch(/^(added|up to date)/m);
  return `${stdout}${stderr}`.split('\n').filter((line) => /^npm warn/i.test(line));
}

test('`npm ci` prints no warnings in a clone of the repository', async () => {
  await expect(warnings()).resolves.toEqual([]);
});

test('`npm ci` hides only warnings about packages that ask for Node 22 but also work on Node 20', async () => {
  const hidden = await warnings('--loglevel', 'warn');
  expect(hidden.filter((line) => !line.includes('EBADENGINE'))).toEqual([]);
  const packages = hidden.flatMap((line) => /package: '(.+)@/.exec(line)?.slice(1) ?? []);
  expect(packages.toSorted()).toEqual(onNode20 ? WANTS_NODE_22 : []);
});

interface Lock {
  readonly packages: Readonly<
    Record<string, { hasInstallScript?: true; resolved?: string; integrity?: string; deprecated?: string }>
  >;
}

async function locked(): Promise<Lock['packages']> {
  return (JSON.parse(await readFile('package-lock.json', 'utf8')) as Lock).packages;
}

/** Returns the names of the packages for which `so` is true. */
async function namesOf(so: (entry: Lock['packages'][string]) => unknown): Promise<string[]> {
  const entries = Object.entries(await locked()).filter(([path, entry]) => path !== '' && so(entry));
  return [...new Set(entries.map(([path]) => path.replace(/.*node_modules\//, '')))].toSorted();
}

test('package.json allows or denies each install script, as npm 11 requires', async () => {
  const { allowScripts } = JSON.parse(await readFile('package.json', 'utf8')) as { allowScripts?: object };
  expect(Object.keys(allowScripts ?? {}).toSorted()).toEqual(
    await namesOf(({ hasInstallScript }) => hasInstallScript),
  );
});

test('package-lock.json contains no deprecated package', async () => {
  await expect(namesOf(({ deprecated }) => deprecated)).resolves.toEqual([]);
});

test('package-lock.json contains no URL of a registry', async () => {
  await expect(namesOf(({ resolved }) => resolved)).resolves.toEqual([]);
  await expect(readFile('package-lock.json', 'utf8')).resolves.not.toMatch(/https?:\/\/[^"]*\.tgz/);
});

test('package-lock.json has a checksum of each package, so that npm runs no file that nobody has verified', async () => {
  await expect(namesOf(({ integrity }) => !integrity)).resolves.toEqual([]);
});
