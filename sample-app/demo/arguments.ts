import { parseArgs } from 'node:util';
import { isLockStore, LOCK_STORES, type LockStore } from '../config/environment.js';

export interface DemoArguments {
  /** Store of the locks. */
  readonly store: LockStore;
  /** File of tasks; by default the tasks of the demo. */
  readonly tasks: string | undefined;
}

const USAGE = `npm run demo -- [tasks.json] [--store ${LOCK_STORES.join('|')}]`;

/**
 * Reads the command line.
 *
 * @throws Error that says what is wrong and how to correct it
 */
export function readArguments(args: readonly string[]): DemoArguments {
  const { values, positionals } = parse(args);
  const { store = 'redis' } = values;
  if (!isLockStore(store))
    throw new Error(`--store must be one of ${LOCK_STORES.join(', ')}; not "${store}"`);
  if (positionals.length > 1) throw new Error(`One file of tasks, not ${positionals.length}: ${USAGE}`);
  return { store, tasks: positionals[0] };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: { store: { type: 'string' } },
    });
  } catch (error) {
    const [what] = (error as Error).message.split('\n');
    throw new Error(`${what}: ${USAGE}`, { cause: error });
  }
}
