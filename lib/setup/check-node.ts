import { checkStore } from '../core/check-store.js';
import {
  badNumber,
  badOption,
  badSecret,
  ESCAPE_PASSWORD,
  hasUnescapedPassword,
  kindOfValue,
  listed,
} from '../core/checks.js';
import type { Store } from '../core/ports.js';
import { isClient } from '../stores/redis/driver-for.js';
import type { StoreFactory } from '../core/store-factory.js';

/** Accepted values of the option `nodes`, for messages. */
export const NODES_RULE =
  "a Redis node or an array of Redis nodes, each a URL such as 'redis://localhost:6379' (redis://, rediss:// or " +
  "unix://), ioredis options, or a client; or one `postgres(...)`, `mysql(...)`, `etcd(...)` or `zookeeper(...)`; or 'memory' to lock " +
  'inside this process only';

/**
 * URLs of known servers that this option does not accept, each with its remedy. The command `nestjs-redlock` accepts
 * most of these URLs.
 */
const OTHER_URLS: readonly (readonly [form: RegExp, remedy: string])[] = [
  [/^postgres(ql)?:\/\//, 'use `postgres({ connectionString })` of nestjs-redlock/postgres'],
  [/^(mysql|mariadb):\/\//, 'use `mysql({ uri })` of nestjs-redlock/mysql'],
  [/^zookeepers?:\/\//, 'use `zookeeper({ connectionString })` of nestjs-redlock/zookeeper'],
  [/^https?:\/\//, 'use `etcd({ endpoints })` of nestjs-redlock/etcd'],
  [/^rediss?\+sentinel:\/\//, 'use an object of ioredis options, `{ name, sentinels }`'],
  [/^rediss?\+cluster:\/\//, 'use a `Cluster` client'],
  [/^(localhost|[\w-]+(\.[\w-]+)+|[\w.-]+:\d+)$/, 'begin with redis://'],
];

/**
 * Checks one of the `count` nodes of the options. ioredis ignores options that it does not know, and then connects to
 * the wrong host or database. A database that is not a number even ends the process: the server refuses `SELECT NaN`,
 * and ioredis does not handle the rejection (seen with 5.11).
 *
 * @throws TypeError or RangeError naming the rule; no password is in the message
 */
export function checkNode(node: unknown, count: number): void {
  if (node === 'memory') {
    if (count === 1) return;
    throw badOption('nodes', "'memory' alone, or Redis nodes alone (the two cannot vote together)", node);
  }
  if (typeof node === 'string') return checkUrl(node);
  if (node === undefined) {
    const { message } = badOption('nodes', NODES_RULE, node);
    throw new TypeError(`${message}; if the value comes from an environment variable, set the variable`);
  }
  if (typeof node !== 'object' || node === null) throw badSecret('`nodes`', NODES_RULE, node);
  if (isStandAlone(node) && count > 1) {
    throw new TypeError(
      'Expected `nodes` to be a single store, such as `postgres(...)`, got several nodes: this store replicates itself, and ' +
        'cannot agree on tokens with other nodes. Give one store, or only Redis nodes; or configure ' +
        'two modules with different names',
    );
  }
  if (isFactory(node)) {
    if (typeof node.openStore !== 'function')
      throw badOption('nodes.openStore', 'a function', node.openStore);
  } else if (isStore(node)) checkStore(node, 'the store in `nodes`');
  else if (!isClient(node)) checkObject(node);
}

/**
 * `true` for the factory of a store, such as the result of `postgres(...)`. The function checks the method and not the
 * class of the factory, because the application may have two copies of this package.
 */
export function isFactory(node: unknown): node is StoreFactory {
  return typeof node === 'object' && node !== null && 'openStore' in node;
}

/**
 * `true` for an object with at least one method of a store. An incomplete store also counts, so that the next check
 * names its missing methods instead of taking it for options of a client. A client does not count, although a Sentinel
 * client of node-redis has an `acquire`.
 */
export function isStore(node: unknown): node is Store {
  return (
    typeof node === 'object' &&
    node !== null &&
    ('acquire' in node || 'extend' in node || 'modes' in node) &&
    !isClient(node)
  );
}

/** `true` for a store that cannot agree on tokens with other nodes (S24). */
export function isStandAlone(node: unknown): boolean {
  return isFactory(node) || (isStore(node) && !node.raise);
}

function checkUrl(text: string): void {
  const refusal = badSecret('`nodes`', NODES_RULE, text);
  const because = (reason: string): TypeError => new TypeError(`${refusal.message}, which ${reason}`);
  const [, authority = ''] = /^rediss?:\/\/([^/?#]*)/.exec(text) ?? [];
  if (authority.slice(authority.lastIndexOf('@') + 1).includes(','))
    throw because(
      'has several hosts; give independent nodes as an array with a URL for each, Sentinels as ioredis options ' +
        '`{ name, sentinels }`, and a Cluster as a `Cluster` client',
    );
  if (/[\s\p{Cc}]/u.test(text)) throw because('contains a space or a line break');
  if (hasUnescapedPassword(text)) throw because(ESCAPE_PASSWORD);
  const path = /^(?:unix:\/\/)?\/(?!\/)/.test(text);
  if (!path && !(/^rediss?:\/\//.test(text) && URL.canParse(text))) {
    const [, remedy] = OTHER_URLS.find(([form]) => form.test(text)) ?? [];
    throw remedy === undefined ? refusal : new TypeError(`${refusal.message}; ${remedy}`);
  }
  // A path has no host, so add one before the check. Any host will do.
  const { hostname, username, password, pathname, searchParams } = new URL(
    path ? text.replace(/^(unix:\/\/)?/, 'redis://host') : text,
  );
  if (hostname === '') throw because('has no host');
  if (!isEscaped(username + password)) throw because('has a "%" that is not written as %25');
  const database = path || pathname === '' || pathname === '/' ? searchParams.get('db') : pathname.slice(1);
  if (database !== null && !isDatabase(database))
    throw because('does not end in the number of a database, such as redis://localhost:6379/1');
}

function checkObject(node: object): void {
  // The message shows only a number as `db` or `port`, because any other value may be a password.
  const refuse = (got: string): never => {
    throw new TypeError(`Expected \`nodes\` to be ${NODES_RULE}, got ${got}`);
  };
  if (Array.isArray(node)) refuse('an array in the array');
  if ('href' in node) refuse('a URL object; give its text, `url.href`');
  if ('then' in node) refuse('a Promise; await it, or use `forRootAsync`');
  if (['connect', 'customCommand'].some((name) => typeof Reflect.get(node, name) === 'function')) {
    refuse(
      'a client of another package or version; give a `Redis` or `Cluster` of ioredis or iovalkey, a `GlideClient` or ' +
        '`GlideClusterClient` of Valkey GLIDE 2, or the result of `createClient` of node-redis 5 or 6 (with version 6 also of ' +
        '`createCluster` and `createSentinel`)',
    );
  }
  const [unknown, remedy] = UNKNOWN_TO_IOREDIS.find(([name]) => name in node) ?? [];
  if (unknown !== undefined)
    refuse(`an object with \`${unknown}\`, which ioredis does not know; give ${remedy}`);
  checkAddress(node, refuse);
  const { db, port } = node as { readonly db?: unknown; readonly port?: unknown };
  if (db !== undefined && !isDatabase(db))
    throw badText('nodes.db', 'the number of a database, such as 1', db);
  if (port !== undefined && !isPort(port)) throw badText('nodes.port', 'a port, from 1 to 65535', port);
}

/**
 * Refuses options without a server: ioredis would connect to localhost. An environment variable that is not set gives such
 * options.
 */
function checkAddress(node: object, refuse: (got: string) => never): void {
  const { host, port, path, sentinels } = node as Readonly<Record<string, unknown>>;
  for (const [name, value] of Object.entries({ host, path })) {
    if (name in node && !(typeof value === 'string' && value !== '') && !hasSentinels(sentinels))
      refuse(`an object whose \`${name}\` is ${kindOfValue(value)}; ${SET_IT}`);
  }
  if ('sentinels' in node && !hasSentinels(sentinels))
    refuse(`an object whose \`sentinels\` is ${kindOfValue(sentinels)}; ${SET_IT}`);
  if (host === undefined && path === undefined && sentinels === undefined && port === undefined) {
    const names = Object.keys(node);
    refuse(
      `an object ${names.length === 0 ? 'without options' : `with ${listed(names)}`}, which names no server; give \`host\`, ` +
        '`path` or `sentinels`',
    );
  }
}

const SET_IT = 'if the value comes from an environment variable, set the variable';

function hasSentinels(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0;
}

/** A text in the place of a number may be a whole URL. */
function badText(option: string, rule: string, value: unknown): Error {
  return typeof value === 'number' ? badNumber(option, rule, value) : badSecret(`\`${option}\``, rule, value);
}

/** Options by which other clients and packages, such as BullMQ, name the address. ioredis would ignore them and connect to localhost. */
const UNKNOWN_TO_IOREDIS: readonly (readonly [name: string, remedy: string])[] = [
  ['url', 'the URL itself'],
  ['uri', 'the URL itself'],
  ['hostname', '`host`'],
  ['socket', '`host` and `port`'],
  ['connection', 'the value of `connection` itself'],
  ['connectionString', 'the URL itself'],
  ['address', '`host` and `port`'],
  ['server', '`host` and `port`'],
  ['redis', 'the value of `redis` itself'],
  ['config', 'the value of `config` itself'],
  ['client', 'the client itself'],
  ['redisOptions', 'the value of `redisOptions` itself'],
  ['nodes', 'the nodes as an array, or a `Cluster` client'],
];

/** Accepts a number and its text: ioredis also takes texts, such as the values of environment variables. */
function isDatabase(value: unknown): boolean {
  return /^\d{1,5}$/.test(String(value));
}

function isPort(value: unknown): boolean {
  return isDatabase(value) && Number(value) >= 1 && Number(value) <= 65_535;
}

function isEscaped(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}
