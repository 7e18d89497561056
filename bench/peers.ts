import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';

/** npm runs scripts in the folder of the package. */
export const ROOT = resolve('.');

const FOLDER = join(ROOT, 'bench', 'peers');
const fromPeers = createRequire(join(FOLDER, 'package.json'));
const fromHere = createRequire(join(ROOT, 'package.json'));

/** Installs the libraries that are compared, into a folder of their own. */
export function installPeers(): void {
  if (existsSync(join(FOLDER, 'node_modules', 'redlock'))) return;
  console.log('Installing the libraries to compare with, into bench/peers ...');
  // Not all of them have caught up with the versions of what they build on, which npm would refuse.
  const args = ['install', '--no-audit', '--no-fund', '--no-package-lock', '--legacy-peer-deps'];
  execFileSync('npm', args, { cwd: FOLDER, stdio: ['ignore', 'ignore', 'inherit'] });
}

/** Loads a library from that folder. */
export async function importPeer<T>(name: string): Promise<T> {
  // `require`, as an application in CommonJS loads it: what Nest itself has been until version 12.
  return Promise.resolve(fromPeers(name) as T);
}

/** The version of a package that is compared, or of one of ours. */
export function versionOf(name: string): string {
  if (name === 'nestjs-redlock') return versionIn(join(ROOT, 'package.json'));
  const from = name === 'ioredis' ? fromHere : fromPeers;
  // Not every package exports its package.json.
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
