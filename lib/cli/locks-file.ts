import { access } from 'node:fs/promises';
import { extname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type DeclaredLock, isDeclaredLock } from '../core/declared-lock.js';
import { UsageError } from './usage-error.js';

/**
 * Loads the declared locks that a file of the application exports, as an ES module or in CommonJS, and sorts them by
 * name.
 *
 * @throws UsageError; Error when the file throws
 */
export async function readLocks(file: string): Promise<readonly DeclaredLock[]> {
  const found = locksIn(await load(file));
  if (found.size === 0)
    throw new UsageError(
      `${file} does not export a result of defineLocks. Export it there, or give the file that exports it`,
    );
  const names = [...found].map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined)
    throw new UsageError(`${file} exports two locks with the name "${twice}". Rename one of them`);
  return [...found].toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

async function load(file: string): Promise<unknown> {
  const path = resolve(file);
  await access(path).catch(() => {
    throw new UsageError(
      `There is no file ${path}. Build the application first, and give a path relative to the current folder`,
    );
  });
  try {
    return await import(pathToFileURL(path).href);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ERR_UNKNOWN_FILE_EXTENSION' || /^\.[cm]?tsx?$/.test(extname(path)))
      throw new UsageError(`Node.js cannot load ${file}. Give the compiled file, such as dist/locks.js`);
    throw new Error(`${file} could not be loaded: ${message}`, { cause: error });
  }
}

/**
 * Collects the locks of a module. An export can be a lock, or an object that contains locks by name. A CommonJS module
 * also has the export `default`, which contains all its exports.
 */
function locksIn(value: unknown, depth = 3): Set<DeclaredLock> {
  if (isDeclaredLock(value)) return new Set([value]);
  if (typeof value !== 'object' || value === null || depth === 0) return new Set();
  return new Set(Object.values(value).flatMap((each) => [...locksIn(each, depth - 1)]));
}
