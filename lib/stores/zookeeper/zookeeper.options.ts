import type { SecureContextOptions } from 'node:tls';
import { badSecret, badValue, checkOptionNames } from '../../core/checks.js';

/** A certificate authority, certificate and key, as in `tls.createSecureContext` of Node. */
export interface TlsOptions extends SecureContextOptions {
  /**
   * `false` to check no certificate of a server.
   * @defaultValue true
   */
  readonly rejectUnauthorized?: boolean;
  /** The name in the certificates of the servers, if it differs from their host names. */
  readonly servername?: string;
}

/** A user with a password. */
export interface ZooKeeperLogin {
  /**
   * `'digest'` for ZooKeeper's own scheme. `'sasl'` for DIGEST-MD5, which servers with `sessionRequireClientSASLAuth` ask
   * for; then user and password have only letters, digits and signs of ASCII.
   * @defaultValue 'digest'
   */
  readonly scheme?: 'digest' | 'sasl';
  readonly username: string;
  /** A password, or a function that returns one; it is called for each new connection. */
  readonly password: string | (() => string | Promise<string>);
}

/** The addresses of the servers, and the login. */
export interface ZooKeeperOptions {
  /**
   * The servers of one ensemble, as other clients of ZooKeeper take them: `'10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181'`.
   * A port that is missing is 2181. Behind the servers may stand a path (chroot) such as `/locks`, in which the store
   * keeps all its nodes. When a server does not answer, the store uses the next one.
   */
  readonly connectionString: string;

  /**
   * A user with a password. Only this user may use the nodes that the store then makes; without `auth` everybody may.
   */
  readonly auth?: ZooKeeperLogin;

  /** TLS, such as `{ ca, cert, key }`; `{}` for the certificate authorities of Node. Without it connections are plain. */
  readonly tls?: TlsOptions;

  /**
   * If `true`, a process that has not watched a lock for its ttl may compare the times at which ZooKeeper stored two
   * writes: the holder's last one, and one of its own. So it gets the lock of a crashed holder, and `inspect` does not
   * show that lock any more. With `false` a process that tries once and ends never gets it.
   *
   * These times come from the clock of ZooKeeper's leader. The process uses them only if that clock agreed with the
   * holder's clock and with its own to within half a second. Give `false` if the leader runs on the machine of one of
   * the processes: then setting this machine's clock is enough for two holders.
   * @defaultValue true
   */
  readonly compareTimes?: boolean;
}

export interface Server {
  readonly host: string;
  readonly port: number;
}

/** The parts of a connection string. */
export interface Ensemble {
  readonly servers: readonly Server[];
  /** The path before all paths of the store; empty without one. */
  readonly chroot: string;
}

const NAMES: readonly (keyof ZooKeeperOptions)[] = ['connectionString', 'auth', 'tls', 'compareTimes'];

const RULE =
  "servers such as 'a:2181,b:2181,c:2181', with or without a path such as '/locks' behind the last one";

const DEFAULT_PORT = 2181;

/** @throws TypeError naming the option and what is wrong with it, but no value that may contain a password */
export function checkZooKeeperOptions(options: ZooKeeperOptions): void {
  if (typeof options === 'string')
    throw new TypeError(
      "Expected the options of `zookeeper` to be an object such as `{ connectionString: 'a:2181' }`, got a string",
    );
  checkOptionNames('zookeeper', options, NAMES, (name) =>
    ['hosts', 'servers', 'nodes', 'endpoints'].includes(name)
      ? `Give \`connectionString\`, ${RULE}`
      : undefined,
  );
  const { connectionString, auth, tls, compareTimes } = options;
  if (connectionString === undefined)
    throw new TypeError(
      `Expected \`zookeeper\` to have \`connectionString\`, ${RULE}, got undefined; if the value comes from an environment ` +
        'variable, set the variable',
    );
  ensembleOf(connectionString);
  if (tls !== undefined && (typeof tls !== 'object' || tls === null))
    throw badSecret('`tls`', 'an object such as { ca }', tls);
  if (auth !== undefined) checkLogin(auth);
  if (compareTimes !== undefined && typeof compareTimes !== 'boolean')
    throw badValue('`compareTimes`', 'true or false', compareTimes);
}

/** @throws TypeError when it is not a list of servers */
export function ensembleOf(connectionString: string): Ensemble {
  if (typeof connectionString !== 'string') throw badSecret('`connectionString`', RULE, connectionString);
  const slash = connectionString.indexOf('/');
  const list = slash === -1 ? connectionString : connectionString.slice(0, slash);
  if (connectionString.includes('://'))
    throw badSecret('`connectionString`', `${RULE}; without a scheme`, connectionString);
  if (list.includes('@'))
    throw new TypeError('Expected `connectionString` without a user and a password; give `auth`');
  const servers = list.split(',').map((server) => serverOf(server.trim()));
  return { servers, chroot: slash === -1 ? '' : chrootOf(connectionString.slice(slash)) };
}

function serverOf(text: string): Server {
  const [, inBrackets, plain, port] = /^(?:\[([\da-fA-F:.]+)\]|([\w.-]+))(?::(\d{1,5}))?$/.exec(text) ?? [];
  const host = inBrackets ?? plain;
  const number = port === undefined ? DEFAULT_PORT : Number(port);
  if (host === undefined || number < 1 || number > 65_535)
    throw badSecret(
      'each server of `connectionString`',
      "a host with a port, such as 'a:2181' or '[::1]:2181'",
      text,
    );
  return { host, port: number };
}

function chrootOf(path: string): string {
  if (path === '/') return '';
  const parts = path.slice(1).split('/');
  if (
    parts.some((part) => part === '' || part === '.' || part === '..') ||
    /[\p{Cc}\uD800-\uDFFF\uFFF0-\uFFFF]/u.test(path)
  )
    throw new TypeError(
      "Expected the path in `connectionString` to be like '/locks' or '/apps/locks', without empty parts, `.`, `..` and " +
        'control characters',
    );
  return path;
}

function checkLogin(auth: ZooKeeperLogin): void {
  checkOptionNames('auth', auth, ['scheme', 'username', 'password']);
  const { scheme, username, password } = auth;
  if (scheme !== undefined && scheme !== 'digest' && scheme !== 'sasl')
    throw badValue('`auth.scheme`', "'digest' or 'sasl'", scheme);
  if (typeof username !== 'string' || username === '' || username.includes(':'))
    throw badSecret('`auth.username`', 'a string that is not empty, without a colon', username);
  if (typeof password !== 'string' && typeof password !== 'function')
    throw new TypeError(`Expected \`auth.password\` to be a string or a function, got ${typeof password}`);
}
