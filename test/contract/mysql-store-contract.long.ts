import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { LockMode } from '../../lib/core/lock-mode.js';
import { MysqlStore } from '../../lib/stores/mysql/mysql-store.js';
import { debianMysql, laterMariadb } from '../support/debian-mysql.js';
import { type MysqlServer, startMysqlServer } from '../support/mysql-server.js';
import { newTerms } from '../support/postgres-store.js';
import { storeContract } from 'nestjs-redlock/store';

const modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];
const programs = [...debianMysql(), ...laterMariadb()];

for (const program of programs)
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
  });

// Without this test the file would fail on a machine without the server.
test('the contract runs on the MySQL and the later MariaDB of Debian, as far as they can be had', () => {
  expect(programs).toEqual(expect.any(Array));
});
