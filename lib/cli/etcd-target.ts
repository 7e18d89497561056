import type { Store } from '../core/ports.js';
import type { Target } from './command-line.js';
import { tlsOf } from './node-url.js';
import { UsageError } from './usage-error.js';

const SCHEME = /^https?:\/\//;

/** True if the nodes are an etcd. */
export function isEtcd({ nodes }: Target): boolean {
  return nodes.some((url) => SCHEME.test(url));
}

/**
 * The store that a target names; it does not connect yet.
 *
 * @throws UsageError that does not name the URL, because it may hold a password
 */
export async function openEtcd(target: Target): Promise<Store> {
  const { nodes, source, keyPrefix } = target;
  const refusal = `Expected ${source} to be URLs of the members of one etcd, such as http://user:password@10.0.0.1:2379`;
  if (!nodes.every((url) => SCHEME.test(url) && URL.canParse(url))) throw new UsageError(refusal);
  const urls = nodes.map((url) => new URL(url));
  const [username, password] = [urls[0]?.username ?? '', urls[0]?.password ?? ''].map(decodeURIComponent);
  const isSecure = urls.some(({ protocol }) => protocol === 'https:');
  // Not loaded for who locks in Redis.
  const { etcd } = await import('../etcd/index.js');
  try {
    return etcd({
      endpoints: urls.map(({ origin }) => origin),
      ...(username ? { username, password: password ?? '' } : {}),
      ...(isSecure ? { tls: tlsOf(target) } : {}),
    }).openStore({
      keyPrefix,
      // `doctor` says all that.
      warnOnce: () => undefined,
      lost: () => undefined,
      ready: () => undefined,
      looksOnly: true,
    });
  } catch {
    throw new UsageError(refusal);
  }
}
