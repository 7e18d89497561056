import { afterAll, beforeAll, describe, test } from '@jest/globals';
import type { LockMode } from '../../lib/core/lock-mode.js';
import { MysqlStore } from '../../lib/stores/mysql/mysql-store.js';
import { type MysqlServer, mysqlPrograms, startMysqlServer } from '../support/mysql-server.js';
import { onEach } from '../support/on-each.js';
import { newTerms } from '../support/postgres-store.js';
import { storeContract } from 'nestjs-redlock/store';

const modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];

onEach(mysqlPrograms(), 'MariaDB', (program) =>
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
  }),
);
