import type { StoreFactory } from '../core/store-factory.js';
import { MYSQL_SCHEME, type Target } from './target.js';
import { tlsOf } from './credentials.js';
import { quietFactory } from './quiet-factory.js';
import { UsageError } from './usage-error.js';

/** `true` if the target is a MySQL or MariaDB. */
export function isMysql({ nodes }: Target): boolean {
  return nodes.some((url) => MYSQL_SCHEME.test(url));
}

/**
 * Returns the store of a target, before it is opened.
 *
 * @throws UsageError that does not name the URL, because it may hold a password; also when it is opened
 */
export async function mysqlOf(target: Target): Promise<StoreFactory> {
  const { nodes, source, tablePrefix, ca, cert, insecure } = target;
  const [uri = '', second] = nodes;
  if (second !== undefined)
    throw new UsageError(`Expected ${source} to be one URL: a MySQL or MariaDB must be the only node`);
  // Loaded on demand: a command for Redis does not need mysql2, which may not be installed.
  const { mysql } = await import('../mysql/index.js');
  const isSecure = ca !== undefined || cert !== undefined || insecure;
  const make = (): StoreFactory =>
    mysql({
      uri,
      ...(tablePrefix === undefined ? {} : { tablePrefix }),
      ...(isSecure ? { ssl: tlsOf(target) ?? true } : {}),
    });
  return quietFactory(
    make,
    `Expected ${source} to be a URL such as mysql://user:password@host:3306/database`,
  );
}
