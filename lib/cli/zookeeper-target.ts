import type { StoreFactory } from '../core/store-factory.js';
import type { Target } from './target.js';
import { decode, tlsOf } from './credentials.js';
import { quietFactory } from './quiet-factory.js';
import { UsageError } from './usage-error.js';

/** The parts of a URL: scheme, text before the last `@`, servers with their path, and the scheme of the login. */
const URL_PARTS = /^zookeeper(s)?:\/\/(?:(.*)@)?([^@?#]+)(?:\?scheme=(digest|sasl))?$/s;

/** `true` if the target is a ZooKeeper. */
export function isZooKeeper({ nodes }: Target): boolean {
  return nodes.some((url) => /^zookeepers?:\/\//.test(url));
}

/**
 * Returns the store of a target, before it is opened.
 *
 * @throws UsageError that does not name the URL, because it may hold a password; also when it is opened
 */
export async function zookeeperOf(target: Target): Promise<StoreFactory> {
  const { nodes, source } = target;
  const refusal =
    `Expected ${source} to be one URL with all servers of a ZooKeeper, such as ` +
    'zookeeper://user:password@10.0.0.1:2181,10.0.0.2:2181/locks, or zookeepers:// for TLS';
  const [match, secure, userInfo = '', connectionString = '', scheme] = URL_PARTS.exec(nodes[0] ?? '') ?? [];
  const [username = '', ...rest] = userInfo.split(':');
  const hasLogin = userInfo !== '' || scheme !== undefined;
  // With a password alone, the command would connect as nobody, and show nothing of a user's locks.
  if (match === undefined || nodes.length > 1 || (hasLogin && username === '')) throw new UsageError(refusal);
  const auth = {
    ...(scheme ? { scheme: scheme as 'digest' | 'sasl' } : {}),
    ...{ username: decode(username, source), password: decode(rest.join(':'), source) },
  };
  // Loaded on demand: a command for Redis needs no code of ZooKeeper.
  const { zookeeper } = await import('../zookeeper/index.js');
  const make = (): StoreFactory =>
    zookeeper({
      connectionString,
      ...(username ? { auth } : {}),
      ...(secure ? { tls: tlsOf(target) } : {}),
    });
  return quietFactory(make, refusal);
}
