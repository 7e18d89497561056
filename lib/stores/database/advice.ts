import { UnfitStoreError } from '../../core/errors.js';

/** Advice for the errors that a pattern describes. It is tested with the code of an error, a space and its message. */
export type Advice = readonly (readonly [RegExp, string])[];

/**
 * Makes the function that adds advice to the error of a lost connection, if there is advice for it.
 *
 * @param ofDatabase - advice for the error codes of the server, and for messages of the package that connects to it. It
 *   comes before the advice for errors of Node.
 */
export function adviser(ofDatabase: Advice): (error: Error) => Error {
  const all = [...ofDatabase, ...OF_NODE];
  return (error) => {
    if (error instanceof UnfitStoreError) return error;
    const { code = '' } = error as { code?: string };
    // The message is empty if a host name has several addresses and none of them answers.
    const message = error.message === '' ? code : error.message;
    const [, advice] = all.find(([pattern]) => pattern.test(`${code} ${message}`)) ?? [];
    return advice === undefined
      ? error
      : Object.assign(new Error(`${message}; ${advice}`, { cause: error }), { code });
  };
}

/** Advice for error codes of Node, and for words that several packages use. */
const OF_NODE: Advice = [
  [/ENOTFOUND|EAI_AGAIN/, 'check the name of the host'],
  [
    /ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|timeout expired|connection timeout|no answer/i,
    'check that the host is up, and that no firewall blocks the port',
  ],
  [
    /HANDSHAKE_SSL_ERROR|certificate|altnames|self.signed/i,
    'give the certificate authority as `ssl: { ca }`, and connect to a host name that the certificate contains',
  ],
];

/** Advice for a server without a free connection. */
export const RAISE_MAX_CONNECTIONS = 'raise max_connections: each process takes up to three connections';

/** Advice for a server that accepts a user only over TLS. */
export const GIVE_SSL = 'give `ssl`: the server accepts this user only over TLS';

/** Advice for a server that has no TLS. */
export const LEAVE_OUT_SSL = 'leave out `ssl`, or turn it on at the server';

/** Advice for a database that does not exist. */
export const CREATE_DATABASE = 'create the database, or name one that exists';
