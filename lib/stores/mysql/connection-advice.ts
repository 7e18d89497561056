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
    'check the port, and that the server runs there and listens on that address (bind_address)',
  ],
  [/ENOENT/, 'check the path of the Unix socket'],
  [/^ER_ACCESS_DENIED_ERROR/, 'check the user and the password, and from which hosts the user may connect'],
  [/^ER_HOST_(NOT_PRIVILEGED|IS_BLOCKED)/, 'let the user connect from this host'],
  [/^ER_DBACCESS_DENIED_ERROR/, 'give the user rights for the database'],
  [/^ER_BAD_DB_ERROR/, CREATE_DATABASE],
  [/^ER_NO_DB_ERROR/, 'name a database, such as mysql://host:3306/app'],
  [/^ER_(CON_COUNT_ERROR|TOO_MANY_USER_CONNECTIONS|USER_LIMIT_REACHED)/, RAISE_MAX_CONNECTIONS],
  [/^ER_SECURE_TRANSPORT_REQUIRED|insecure transport/, GIVE_SSL],
  [/HANDSHAKE_NO_SSL_SUPPORT/, LEAVE_OUT_SSL],
  [
    /ECONNRESET|PROTOCOL_|closed the connection|connection was closed|Malformed/i,
    'check that the server at that address is MySQL or MariaDB',
  ],
]);
