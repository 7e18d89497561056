import {
  adviser,
  CREATE_DATABASE,
  GIVE_SSL,
  LEAVE_OUT_SSL,
  RAISE_MAX_CONNECTIONS,
} from '../database/advice.js';

/** Adds advice to the error of a lost connection, if there is advice for it. */
export const withAdvice = adviser([
  [
    /ECONNREFUSED/,
    'check the port, and that PostgreSQL runs there and listens on that address (listen_addresses)',
  ],
  [/ENOENT/, 'check the folder of the Unix socket'],
  [/^28P01|SASL|password must be/, 'check the user and the password'],
  [/no pg_hba\.conf entry.*no encryption/, GIVE_SSL],
  [/^28000/, 'check the user, and that pg_hba.conf lets it connect from here to that database'],
  [/^3D000/, CREATE_DATABASE],
  [/^42501/, 'give the role the right to connect to the database'],
  [/^53300|too many clients|no more connections/, RAISE_MAX_CONNECTIONS],
  [/does not support SSL/, LEAVE_OUT_SSL],
  [
    /ECONNRESET|terminated unexpectedly|unexpected message/i,
    'check that the server at that address is PostgreSQL',
  ],
]);
