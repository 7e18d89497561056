import type { Store } from '../core/ports.js';
import type { Target } from './command-line.js';
import { lookingTerms } from './looking-terms.js';
import { UsageError } from './usage-error.js';

const SCHEME = /^postgres(ql)?:\/\//;

/** `true` if the target is a PostgreSQL. */
export function isPostgres({ nodes }: Target): boolean {
  return nodes.some((url) => SCHEME.test(url));
}

/**
 * Makes the store of a target, without connecting it.
 *
 * @throws UsageError that does not name the URL, because it may hold a password
 */
export async function openPostgres(target: Target): Promise<Store> {
  const { nodes, source, schema } = target;
  const [connectionString = '', second] = nodes;
  if (second !== undefined)
    throw new UsageError(`Expected ${source} to be one URL: a PostgreSQL must be the only node`);
  // Loaded on demand: a command for Redis does not need pg, which may not be installed.
  const { postgres } = await import('../postgres/index.js');
  try {
    return postgres({ connectionString, ...(schema === undefined ? {} : { schema }) }).openStore(
      lookingTerms(target),
    );
  } catch {
    throw new UsageError(
      `Expected ${source} to be a URL such as postgres://user:password@host:5432/database`,
    );
  }
}
