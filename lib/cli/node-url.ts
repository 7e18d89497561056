import { Cluster, type RedisOptions } from 'ioredis';
import { type Client, KEEP_ALIVE_MS, openClient } from '../stores/redis/connection/connection.js';
import type { Target } from './target.js';
import { decode, tlsOf } from './credentials.js';
import { UsageError } from './usage-error.js';

const FORMS =
  'redis://host:6379, rediss://host:6379 (TLS), unix:///path, redis+sentinel://host:26379,host:26379/name ' +
  'or redis+cluster://host:6379,host:6379';

/** The parts of a URL: scheme, text before the last `@`, hosts, path and query. */
const URL_PARTS = /^(rediss?)(\+sentinel|\+cluster)?:\/\/(?:(.*)@)?([^/?#@]+)(?:\/([^?#]*))?(\?[^#]*)?$/s;

interface Address {
  readonly host: string;
  readonly port: number;
}

/**
 * Makes a client for each node of a target, without connecting it.
 *
 * @throws UsageError that gives the number of the URL, not its text, which may hold a password
 */
export function openNodes(target: Target): Client[] {
  const tls = tlsOf(target);
  return target.nodes.map((url, index) => {
    const where = `${target.source}${target.nodes.length > 1 ? ` (URL number ${index + 1})` : ''}`;
    return openNode(url, where, tls);
  });
}

function openNode(url: string, where: string, tls: RedisOptions['tls']): Client {
  if (/,\s*rediss?(\+\w+)?:\/\//.test(url)) throw severalHosts(where);
  const path = /^(?:unix:\/\/)?(\/.*)$/s.exec(url)?.[1];
  if (path !== undefined) return openClient({ path });
  const [match, scheme, kind, userInfo, hosts = '', rest = '', query = ''] = URL_PARTS.exec(url) ?? [];
  if (match === undefined) throw new UsageError(`Expected ${where} to be a Redis URL, such as ${FORMS}`);
  const options: RedisOptions = { ...credentialsOf(userInfo, where), ...(scheme === 'rediss' && { tls }) };
  const parameters = new URLSearchParams(query);
  const known = kind === '+sentinel' ? ['sentinelUsername', 'sentinelPassword'] : [];
  const unknown = [...parameters.keys()].find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new UsageError(
      `Expected ${where} to have no parameters${known.length > 0 ? ` other than ${known.join(' and ')}` : ''}`,
    );
  }

  if (kind === '+cluster') {
    if (rest !== '')
      throw new UsageError(`Expected ${where} to end after its hosts: a Cluster has no databases`);
    return openCluster(addressesOf(hosts, 6_379, where), options);
  }
  if (kind === '+sentinel') {
    const [name = '', db] = rest.split('/');
    if (name === '')
      throw new UsageError(
        `Expected ${where} to name the master, as in redis+sentinel://host:26379/mymaster`,
      );
    return openClient({
      ...options,
      ...databaseOf(db, where),
      name: decode(name, where),
      sentinels: addressesOf(hosts, 26_379, where),
      sentinelUsername: parameters.get('sentinelUsername') ?? undefined,
      sentinelPassword: parameters.get('sentinelPassword') ?? undefined,
      ...(scheme === 'rediss' && { sentinelTLS: tls, enableTLSForSentinelMode: true }),
      sentinelRetryStrategy: retryDelay,
    } as RedisOptions);
  }
  const [address, second] = addressesOf(hosts, 6_379, where);
  if (second) throw severalHosts(where);
  return openClient({ ...options, ...address, ...databaseOf(rest || undefined, where) });
}

function severalHosts(where: string): UsageError {
  return new UsageError(
    `Expected ${where} to have one host. Write one URL for each independent node, redis+sentinel:// for a Sentinel, redis+cluster:// for a Cluster`,
  );
}

function openCluster(hosts: Address[], options: RedisOptions): Cluster {
  return new Cluster(hosts, {
    lazyConnect: true,
    enableOfflineQueue: false,
    clusterRetryStrategy: retryDelay,
    // With TLS, do not resolve host names before ioredis connects: a certificate is for a host name, not for the
    // address.
    ...(options.tls && { dnsLookup: (address: string, callback: LookupCallback) => callback(null, address) }),
    redisOptions: {
      ...options,
      connectionName: 'nestjs-redlock',
      connectTimeout: 2_000,
      disconnectTimeout: 100,
      keepAlive: KEEP_ALIVE_MS,
    } as RedisOptions,
  });
}

type LookupCallback = (error: null, address: string) => void;

function retryDelay(times: number): number {
  return Math.min(times * 50, 1_000);
}

function addressesOf(hosts: string, defaultPort: number, where: string): Address[] {
  return hosts.split(',').map((each) => {
    const [, ipv6, name, port = String(defaultPort)] =
      /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(each) ?? [];
    const host = ipv6 ?? name;
    if (host === undefined || Number(port) > 65_535) {
      // The message does not show the invalid part, because it can be a piece of a password, if the @ is missing.
      throw new UsageError(
        `Expected ${where} to have hosts such as localhost:6379 or [::1]:6379; ` +
          'write special characters of a password as %XX, such as %2F for "/" and %40 for "@"',
      );
    }
    return { host, port: Number(port) };
  });
}

function credentialsOf(userInfo: string | undefined, where: string): RedisOptions {
  if (userInfo === undefined) return {};
  const colon = userInfo.indexOf(':');
  const user = colon < 0 ? userInfo : userInfo.slice(0, colon);
  return {
    ...(user !== '' && { username: decode(user, where) }),
    ...(colon >= 0 && { password: decode(userInfo.slice(colon + 1), where) }),
  };
}

function databaseOf(text: string | undefined, where: string): RedisOptions {
  if (text === undefined) return {};
  if (!/^\d{1,5}$/.test(text))
    throw new UsageError(`Expected ${where} to end in the number of a database, such as /1`);
  return { db: Number(text) };
}
