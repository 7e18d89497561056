import { UnfitStoreError } from '../../core/errors.js';

/** Adds advice to the error of a lost connection, if there is advice for it. */
export function withAdvice(error: Error): Error {
  if (error instanceof UnfitStoreError) return error;
  const { code = '' } = error as { code?: string };
  // The message is empty if a host name has several addresses and none of them answers.
  const message = error.message === '' ? code : error.message;
  const [, advice] = ADVICE.find(([pattern]) => pattern.test(`${code} ${message}`)) ?? [];
  return advice === undefined
    ? error
    : Object.assign(new Error(`${message}; ${advice}`, { cause: error }), { code });
}

/** Advice for error codes of Node and of the server, and for error messages of `mysql2`. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [
    /ECONNREFUSED/,
    'check the port, and that the server runs there and listens on that address (bind_address)',
  ],
  [/ENOTFOUND|EAI_AGAIN/, 'check the name of the host'],
  [/ENOENT/, 'check the path of the Unix socket'],
  [
    /ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|no answer/i,
    'check that the host is up, and that no firewall blocks the port',
  ],
  [/^ER_ACCESS_DENIED_ERROR/, 'check the user and the password, and from which hosts the user may connect'],
  [/^ER_HOST_(NOT_PRIVILEGED|IS_BLOCKED)/, 'let the user connect from this host'],
  [/^ER_DBACCESS_DENIED_ERROR/, 'give the user rights for the database'],
  [/^ER_BAD_DB_ERROR/, 'create the database, or name one that exists'],
  [/^ER_NO_DB_ERROR/, 'name a database, such as mysql://host:3306/app'],
  [
    /^ER_(CON_COUNT_ERROR|TOO_MANY_USER_CONNECTIONS|USER_LIMIT_REACHED)/,
    'raise max_connections: each process takes two or three connections',
  ],
  [
    /^ER_SECURE_TRANSPORT_REQUIRED|insecure transport/,
    'give `ssl`: the server accepts this user only over TLS',
  ],
  [/HANDSHAKE_NO_SSL_SUPPORT/, 'leave out `ssl`, or turn it on at the server'],
  [
    /HANDSHAKE_SSL_ERROR|certificate|altnames|self.signed/i,
    'give the certificate authority as `ssl: { ca }`, and connect to a host name that the certificate contains',
  ],
  [
    /ECONNRESET|PROTOCOL_|closed the connection|connection was closed|Malformed/i,
    'check that the server at that address is MySQL or MariaDB',
  ],
];
