import { beforeAll, describe, expect, test } from '@jest/globals';
import { UnfitStoreError } from '../../../lib/core/errors.js';
import { LockService } from '../../../lib/index.js';
import { postgres, type PostgresOptions } from '../../../lib/postgres/index.js';
import { withAdvice } from '../../../lib/stores/postgres/connection-advice.js';
import { freePort } from '../../support/free-port.js';
import { LogLines } from '../../support/log-lines.js';
import { startApp } from '../../support/nest-app.js';
import { type PostgresServer, startPostgresServer } from '../../support/postgres-server.js';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgresServer();
});

describe('a PostgreSQL that cannot be reached at start-up', () => {
  const urlWith = (change: (url: URL) => void): string => {
    const url = new URL(server.url);
    change(url);
    return url.href;
  };

  test.each<readonly [string, () => Promise<PostgresOptions>, RegExp]>([
    [
      'a port on which nobody listens',
      async () => ({ connectionString: `postgres://postgres@127.0.0.1:${await freePort()}/postgres` }),
      /^Cannot reach PostgreSQL at 127\.0\.0\.1:\d+\/postgres: (Error: )?connect ECONNREFUSED .*; check the port, and that PostgreSQL runs there/,
    ],
    [
      'a host that has no address',
      async () => ({ connectionString: urlWith((url) => (url.hostname = 'nosuch.invalid')) }),
      /getaddrinfo \w+ nosuch\.invalid; check the name of the host\. Trying again/,
    ],
    [
      'a database that does not exist',
      async () => ({ connectionString: urlWith((url) => (url.pathname = '/other')) }),
      /database "other" does not exist; create the database, or name one that exists/,
    ],
    [
      'a server without TLS',
      async () => ({ connectionString: server.url, ssl: true }),
      /The server does not support SSL connections; leave out `ssl`/,
    ],
  ])(
    'a PostgreSQL that cannot be reached at start-up is logged with advice for the cause: %s',
    async (_, options, warning) => {
      const lines = new LogLines();
      const app = await startApp({}, { nodes: postgres(await options()) }, { logger: lines });
      const [line] = lines.of('warn');
      expect(line).toMatch(warning);
      expect(line).not.toMatch(/redis/i);
      // The error of each lock has the same advice.
      const [, advice = ''] = /; (.*)\. Trying/.exec(String(line)) ?? [];
      await expect(app.get(LockService).acquire('key', { retry: false })).rejects.toThrow(advice);
      await app.close();
    },
  );
});

describe('an error of a connection', () => {
  test.each([
    ['28P01', 'password authentication failed for user "app"', 'check the user and the password'],
    [
      '',
      'SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string',
      'check the user and the password',
    ],
    [
      '28000',
      'no pg_hba.conf entry for host "10.0.0.1", user "app", database "app", no encryption',
      'give `ssl`',
    ],
    [
      '28000',
      'no pg_hba.conf entry for host "10.0.0.1", user "app", database "app", SSL encryption',
      'pg_hba.conf lets',
    ],
    ['53300', 'sorry, too many clients already', 'raise max_connections'],
    ['', 'timeout expired', 'check that the host is up'],
    [
      'DEPTH_ZERO_SELF_SIGNED_CERT',
      'self-signed certificate',
      'give the certificate authority as `ssl: { ca }`',
    ],
    ['', 'Connection terminated unexpectedly', 'check that the server at that address is PostgreSQL'],
    ['ECONNREFUSED', '', 'ECONNREFUSED; check the port'],
  ])('an error of a connection says what to do: %s %s', (code, message, advice) => {
    const error = withAdvice(Object.assign(new Error(message), { code }));
    expect(error.message).toContain(advice);
    expect(error.message.startsWith(message)).toBe(true);
  });

  test('an error of a connection stays unchanged when it already includes advice, or is temporary', () => {
    const unfit = new UnfitStoreError('cannot be used for locks: no answer');
    const starting = Object.assign(new Error('the database system is starting up'), { code: '57P03' });
    expect(withAdvice(unfit)).toBe(unfit);
    expect(withAdvice(starting)).toBe(starting);
  });
});
