import type { StoreFactory } from '../core/store-factory.js';
import type { Target } from './target.js';
import { decode, tlsOf } from './credentials.js';
import { quietFactory } from './quiet-factory.js';
import { UsageError } from './usage-error.js';

const SCHEME = /^https?:\/\//;

/** `true` if the target is an etcd. */
export function isEtcd({ nodes }: Target): boolean {
  return nodes.some((url) => SCHEME.test(url));
}

/**
 * Returns the store of a target, before it is opened.
 *
 * @throws UsageError that does not name the URL, because it may hold a password; also when it is opened
 */
export async function etcdOf(target: Target): Promise<StoreFactory> {
  const { nodes, source } = target;
  const refusal = `Expected ${source} to be URLs of the members of one etcd, such as http://user:password@10.0.0.1:2379`;
  if (!nodes.every((url) => SCHEME.test(url) && URL.canParse(url))) throw new UsageError(refusal);
  const urls = nodes.map((url) => new URL(url));
  const [username, password] = [urls[0]?.username ?? '', urls[0]?.password ?? ''].map((text) =>
    decode(text, source),
  );
  const isSecure = urls.some(({ protocol }) => protocol === 'https:');
  // Loaded on demand: a command for Redis needs no code of etcd.
  const { etcd } = await import('../etcd/index.js');
  const make = (): StoreFactory =>
    etcd({
      endpoints: urls.map(({ origin }) => origin),
      ...(username ? { username, password: password ?? '' } : {}),
      ...(isSecure ? { tls: tlsOf(target) } : {}),
    });
  return quietFactory(make, refusal);
}
