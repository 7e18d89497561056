import { describe, expect, test } from '@jest/globals';
import { mysql, type MysqlOptions } from '../../../lib/mysql/index.js';
import { unfitBecause, weakBecause } from '../../../lib/stores/mysql/preparation.js';
import { newTerms } from '../../support/postgres-store.js';

const uri = 'mysql://me:secret@db:3306/app';

test.each<[unknown, string]>([
  [
    'mysql://me:secret@db/app',
    'Expected the options of `mysql` to be an object such as `{ uri }`, got a string',
  ],
  [{}, 'got none of them'],
  [{ uri: undefined }, 'if the value comes from an environment variable, set the variable'],
  [{ uri: 'postgres://me:secret@db/app' }, "got a string that begins with 'postgres://'"],
  [{ uri: 'mysql://me:secret@db' }, 'Expected `mysql` to have a database'],
  [{ uri: 'mysql://me:se/cret@db/app' }, 'write special characters of a password as %XX'],
  [{ uri: 'mysql://me:secret@db/app?ssl-mode=REQUIRED' }, 'which has parameters'],
  [{ uri: 'mysql://me:%secret@db/app' }, 'write it as %25'],
  [{ uri: 'mysql://me:secret@db/app/more' }, 'more than a database after its host'],
  [{ uri, port: 0 }, 'Expected `port` to be a port, from 1 to 65535, got 0'],
  [{ uri, password: 7 }, 'Expected `password` to be a string or a function, got number'],
  [{ uri, ssl: 'secret' }, 'Expected `ssl` to be `true`, or an object with options of TLS'],
  [{ uri, tablePrefix: 'Locks' }, 'Expected `tablePrefix` to be lower-case letters'],
  [{ uri, tablePrefix: uri }, "got a string that begins with 'mysql://'"],
  [{ uri, pool: {} }, 'the store opens its own connections'],
  [{ uri, prefix: 'a' }, 'Unknown option `prefix` in `mysql`'],
])('`mysql` refuses the options %j, and does not show the password', (options, message) => {
  let thrown: Error | undefined;
  try {
    mysql(options as MysqlOptions);
  } catch (error) {
    thrown = error as Error;
  }
  expect(thrown?.message).toContain(message);
  expect(thrown?.message).not.toMatch(/secret|cret@/);
});

test('the name of a store has the address and the database, and no user or password', () => {
  const open = (options: MysqlOptions): string => mysql(options).openStore(newTerms()).name;
  expect(open({ uri })).toBe('MySQL at db:3306/app');
  expect(open({ uri: 'mariadb://[::1]/app', database: 'other' })).toBe('MySQL at ::1:3306/app');
  expect(open({ socketPath: '/run/db.sock', database: 'app' })).toBe('MySQL at /run/db.sock/app');
});

describe('the settings of a server', () => {
  const good = {
    version: '10.11.19-MariaDB',
    innodb_flush_log_at_trx_commit: '1',
    log_bin: 'OFF',
    sync_binlog: '0',
  };

  test('a server with good settings is used without a warning', () => {
    for (const version of ['10.6.0-MariaDB', '11.8.9-MariaDB', '8.0.29', '8.4.1', '9.7.4-2']) {
      expect(unfitBecause({ ...good, version })).toBeUndefined();
      expect(weakBecause({ ...good, version })).toEqual([]);
    }
  });

  test.each([
    [{ version: '10.5.28-MariaDB' }, 'its version is 10.5.28-MariaDB'],
    [{ version: '8.0.28' }, 'give MySQL 8.0.29 or MariaDB 10.6.0, or a later one'],
    [{ version: '5.7.44-log' }, 'its version is 5.7.44-log'],
    [{ read_only: 'ON' }, 'read_only is on, as on a replica; give the primary'],
    [{ innodb_read_only: 'ON' }, 'innodb_read_only is on'],
    [{ log_bin: 'ON', binlog_format: 'STATEMENT' }, 'binlog_format is STATEMENT; set it to ROW'],
  ])('a server with %j is refused', (settings, reason) => {
    expect(unfitBecause({ ...good, ...settings })).toContain(reason);
  });

  test.each([
    [
      { innodb_flush_log_at_trx_commit: '2' },
      'innodb_flush_log_at_trx_commit is 2, so a crash forgets locks; set it to 1',
    ],
    [{ log_bin: 'ON', sync_binlog: '0' }, 'sync_binlog is 0'],
    [
      { rpl_semi_sync_master_enabled: 'ON', rpl_semi_sync_master_timeout: '10000' },
      'rpl_semi_sync_master_timeout is 10000 ms: after that, locks are granted that a promoted replica lacks',
    ],
    [
      { rpl_semi_sync_source_enabled: 'ON', rpl_semi_sync_source_timeout: '60000' },
      'rpl_semi_sync_source_timeout is 60000 ms',
    ],
    [{ wsrep_on: 'ON', wsrep_cluster_address: 'gcomm://a,b' }, 'a node of a Galera cluster'],
    [
      { group_replication_group_name: 'a', group_replication_single_primary_mode: 'OFF' },
      'the group has several primaries',
    ],
  ])('a server with %j is warned of', (settings, warning) => {
    expect(unfitBecause({ ...good, ...settings })).toBeUndefined();
    expect(weakBecause({ ...good, ...settings })).toEqual([expect.stringContaining(warning)]);
  });
});
