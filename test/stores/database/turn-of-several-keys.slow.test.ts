import { expect, test } from '@jest/globals';
import { EXCLUSIVE } from '../../../lib/core/lock-mode.js';
import {
  freshKey,
  leaseOf,
  type QueuedCaller,
  StoreAsker,
  type Terms,
} from '../../../lib/stores/contract/store-asker.js';
import { MemoryStore } from '../../../lib/stores/memory/memory-store.js';
import { MysqlStore } from '../../../lib/stores/mysql/mysql-store.js';
import { PostgresStore } from '../../../lib/stores/postgres/postgres-store.js';
import { hasMysql, startMysqlServer } from '../../support/mysql-server.js';
import { startPostgresServer } from '../../support/postgres-server.js';
import { newTerms } from '../../support/postgres-store.js';

// The contract of stores has no such test: the queues of Redis have a standby in place of this message, see docs/waiting.md.

const OPENS = [
  ['memory', async () => new MemoryStore()],
  [
    'PostgreSQL',
    async () => new PostgresStore({ connectionString: (await startPostgresServer()).url }, newTerms()),
  ],
  ...(hasMysql()
    ? [['MariaDB', async () => new MysqlStore({ uri: (await startMysqlServer()).uri }, newTerms())] as const]
    : []),
] as const;

test.each(OPENS)(
  '%s tells the next waiter at once when a call for several keys takes over the turn of an earlier call, and is refused',
  async (_, open) => {
    const store = await open();
    await store.connect();
    try {
      const ask = new StoreAsker(store);
      const [one, other] = [freshKey(), freshKey()];
      const holder = leaseOf(EXCLUSIVE, [one, other]);
      await ask.granted(holder, { ordered: true });
      const [both, atOne, atOther] = [
        await ask.waiter('exclusive', one, other),
        await ask.waiter('exclusive', one),
        await ask.waiter('exclusive', other),
      ];
      const after = ({ terms }: QueuedCaller, waited: number): Terms => ({
        ordered: true,
        position: { ...terms.position!, waited },
      });
      await ask.refused(leaseOf(EXCLUSIVE, [one, other]), after(both, 20_000));
      await ask.refused(leaseOf(EXCLUSIVE, one), after(atOne, 5_000));
      await ask.refused(leaseOf(EXCLUSIVE, other), after(atOther, 15_000));
      await ask.release(holder);
      await both.toldAtOnce();
      // The first call gives up now. The next call of its process passes at the one key, but came too late for the other.
      await ask.refused(leaseOf(EXCLUSIVE, [one, other]), after(both, 10_000));
      await expect(atOne.toldAtOnce()).resolves.toBeUndefined();
      for (const waiter of [both, atOne, atOther]) await waiter.leave();
    } finally {
      await store.close();
    }
  },
);
