import { Locks } from '../standalone/locks.js';
import { RedisStore } from '../stores/redis/redis-store.js';
import type { Store } from '../core/ports.js';
import { printableText } from '../core/printable.js';
import type { StoreTerms } from '../core/store-factory.js';
import type { Target } from './target.js';
import { openNodes } from './node-url.js';
import { factoryOf } from './targets.js';

/**
 * Makes the `LockService` over the nodes of a target, with all rules of an application that has these nodes. Its log goes
 * to the standard error output.
 *
 * @param owner - the name that others see; `undefined` for host:pid
 * @throws UsageError
 */
export async function openLocks(target: Target, owner?: string): Promise<Locks> {
  const { keyPrefix } = target;
  const options = { keyPrefix, logger: LOG, ...(owner === undefined ? {} : { owner }) };
  const factory = await factoryOf(target);
  // `doctor` prints the warnings about a weak setup. Each run of a cron job would repeat them.
  const warnOnce = (): void => undefined;
  if (factory) {
    const openStore = (terms: StoreTerms): Store => factory.openStore({ ...terms, warnOnce });
    return new Locks({ ...options, nodes: { openStore } });
  }
  const clients = openNodes(target);
  return new Locks(
    { ...options, nodes: clients },
    // The clients are our own, so the stores close them, and know how they reconnect (S15).
    {
      nodesOf: (_, context) =>
        clients.map((client) => new RedisStore(client, true, { ...context, warnOnce })),
    },
  );
}

/** Writes a line about the run of this command. The standard output belongs to the command under the lock. */
export function say(message: string): void {
  process.stderr.write(`nestjs-redlock: ${printableText(message)}\n`);
}

const LOG = { debug: () => undefined, info: say, warn: say, error: say };
