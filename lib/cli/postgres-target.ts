import type { StoreFactory } from '../core/store-factory.js';
import type { Target } from './target.js';
import { quietFactory } from './quiet-factory.js';
import { UsageError } from './usage-error.js';

const SCHEME = /^postgres(ql)?:\/\//;

/** `true` if the target is a PostgreSQL. */
export function isPostgres({ nodes }: Target): boolean {
  return nodes.some((url) => SCHEME.test(url));
}

/**
 * Returns the store of a target, before it is opened.
 *
 * @throws UsageError that does not name the URL, because it may hold a password; also when it is opened
 */
export async function postgresOf(target: Target): Promise<StoreFactory> {
  const { nodes, source, schema } = target;
  const [connectionString = '', second] = nodes;
  if (second !== undefined)
    throw new UsageError(`Expected ${source} to be one URL: a PostgreSQL must be the only node`);
  // Loaded on demand: a command for Redis does not need pg, which may not be installed.
  const { postgres } = await import('../postgres/index.js');
  return quietFactory(
    () => postgres({ connectionString, ...(schema === undefined ? {} : { schema }) }),
    `Expected ${source} to be a URL such as postgres://user:password@host:5432/database`,
  );
}
