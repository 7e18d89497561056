import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';

/** Root folder of the repository: npm runs scripts there. */
export const ROOT = resolve('.');

const FOLDER = join(ROOT, 'bench', 'peers');
const fromPeers = createRequire(join(FOLDER, 'package.json'));
const fromHere = createRequire(join(ROOT, 'package.json'));

/** Installs the compared libraries into their own folder. */
export function installPeers(): void {
  if (existsSync(join(FOLDER, 'node_modules', 'redlock'))) return;
  console.log('Installing the libraries to compare with, into bench/peers ...');
  // Some libraries do not allow the current versions of their peers. npm would refuse them without
  // `--legacy-peer-deps`.
  const args = ['install', '--no-audit', '--no-fund', '--no-package-lock', '--legacy-peer-deps'];
  execFileSync('npm', args, { cwd: FOLDER, stdio: ['ignore', 'ignore', 'inherit'] });
}

/** Loads a library from the folder of the compared libraries. */
export async function importPeer<T>(name: string): Promise<T> {
  // Load with `require`, as an application in CommonJS does. NestJS itself was CommonJS until version 12.
  return Promise.resolve(fromPeers(name) as T);
}

/** Returns the version of a compared package, of this package, or of the `ioredis` that this package uses. */
export function versionOf(name: string): string {
  if (name === 'nestjs-redlock') return versionIn(join(ROOT, 'package.json'));
  const from = name === 'ioredis' ? fromHere : fromPeers;
  // Some packages do not export their package.json, so the search goes up from the main file.
  let folder = dirname(from.resolve(name));
  while (!hasName(folder, name)) folder = dirname(folder);
  return versionIn(join(folder, 'package.json'));
}

function hasName(folder: string, name: string): boolean {
  const file = join(folder, 'package.json');
  return existsSync(file) && (JSON.parse(readFileSync(file, 'utf8')) as { name?: string }).name === name;
}

function versionIn(file: string): string {
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}
