import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Lease } from '../../lib/core/lease.js';
import type { LockMode } from '../../lib/core/lock-mode.js';
import { MysqlStore } from '../../lib/stores/mysql/mysql-store.js';
import { SchemaNames, schemaScript } from '../../lib/stores/mysql/schema.js';
import { acquireOn, extendOn, releaseOn } from '../support/ask-store.js';
import { debianMysql, laterMariadb } from '../support/debian-mysql.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { type MysqlServer, startMysqlServer } from '../support/mysql-server.js';
import { onEach } from '../support/on-each.js';
import { newTerms } from '../support/postgres-store.js';
import { storeContract } from 'nestjs-redlock/store';

const modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];

onEach([...debianMysql(), ...laterMariadb()], 'the MySQL and the later MariaDB of Debian', (program) =>
  describe(`on ${program.name}`, () => {
    let server: MysqlServer;
    let store: MysqlStore;

    beforeAll(async () => {
      server = await startMysqlServer({ program });
      store = new MysqlStore({ uri: server.uri }, newTerms());
      await store.connect();
    });
    afterAll(async () => {
      await store.close();
      await server.stop();
    });

    storeContract({ describe, test }, program.name, { modes, store: () => store });

    test('a user with only the rights that the script grants can use locks, and nothing else', async () => {
      await server.query("create user least@'%' identified by 'secret'");
      const admin = await server.client();
      for (const statement of statementsOf(schemaScript(new SchemaNames('least_'), 'least')))
        await admin.query(statement);
      const least = new MysqlStore({ uri: server.uriOf('least'), tablePrefix: 'least_' }, newTerms());
      cleanUpAfterTests(() => least.close());
      await least.connect();
      for (const mode of modes) {
        const kind = mode === 'permits' ? { mode, permits: 2 } : { mode };
        const lease = new Lease([`a ${mode}`, `b ${mode}`], 'me', 60_000, undefined, kind);
        expect(await acquireOn(least, lease)).toMatchObject({ granted: true });
        expect(await extendOn(least, lease, 60_000)).toBe(true);
        for await (const page of least.scan('')) expect(page).toEqual(lease.keys);
        expect(await least.forceRelease(lease.keys[0]!, [lease.id])).toEqual([lease.id]);
        await releaseOn(least, lease);
      }
      expect(await least.check()).toMatchObject({ state: 'voting' });
      const own = await server.client(server.uriOf('least'));
      await expect(own.query('create table least_mine (n int)')).rejects.toThrow(/denied/);
      await expect(own.query('select * from redlock_locks')).rejects.toThrow(/denied/);
      await least.close();
    });
  }),
);

/** The statements of a script for the program `mysql`. */
function statementsOf(script: string): string[] {
  const [before = '', rest = ''] = script.split('delimiter //');
  return [before, ...rest.split('delimiter ;')[0]!.split('//\n')].filter((each) => each.trim() !== '');
}
