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

/** Advice for error codes of Node and PostgreSQL, and for error messages of `pg`. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [
    /ECONNREFUSED/,
    'check the port, and that PostgreSQL runs there and listens on that address (listen_addresses)',
  ],
  [/ENOTFOUND|EAI_AGAIN/, 'check the name of the host'],
  [/ENOENT/, 'check the folder of the Unix socket'],
  [
    /ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|timeout expired|connection timeout|no answer/i,
    'check that the host is up, and that no firewall blocks the port',
  ],
  [/^28P01|SASL|password must be/, 'check the user and the password'],
  [/no pg_hba\.conf entry.*no encryption/, 'give `ssl`: the server accepts this user only over TLS'],
  [/^28000/, 'check the user, and that pg_hba.conf lets it connect from here to that database'],
  [/^3D000/, 'create the database, or name one that exists'],
  [/^42501/, 'give the role the right to connect to the database'],
  [
    /^53300|too many clients|no more connections/,
    'raise max_connections: each process takes two or three connections',
  ],
  [/does not support SSL/, 'leave out `ssl`, or turn it on at the server'],
  [
    /certificate|altnames|self.signed/i,
    'give the certificate authority as `ssl: { ca }`, and connect to a host name that the certificate contains',
  ],
  [
    /ECONNRESET|terminated unexpectedly|unexpected message/i,
    'check that the server at that address is PostgreSQL',
  ],
];
