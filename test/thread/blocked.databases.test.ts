import { afterEach, beforeAll, expect, test } from '@jest/globals';
import type { Store } from '../../lib/core/ports.js';
import { mysql } from '../../lib/mysql/index.js';
import { postgres } from '../../lib/postgres/index.js';
import { hasMysql, startMysqlServer } from '../support/mysql-server.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { newTerms } from '../support/postgres-store.js';
import { Contest, holderProgram } from './blocked-holder.js';

interface Database {
  readonly url: string;
  readonly store: Store;
  stop(): Promise<void>;
}

async function startPostgres(): Promise<Database> {
  const server = await startPostgresServer();
  const { url } = server;
  return { url, store: postgres({ connectionString: url }).openStore(newTerms()), stop: () => server.stop() };
}

async function startMysql(): Promise<Database> {
  const server = await startMysqlServer();
  const { uri } = server;
  return { url: uri, store: mysql({ uri }).openStore(newTerms()), stop: () => server.stop() };
}

let program: string;
let contest: Contest | undefined;
let database: Database | undefined;

beforeAll(async () => {
  program = await holderProgram();
});

afterEach(async () => {
  await contest?.end();
  await database?.stop();
});

const STARTS: [string, () => Promise<Database>][] = [['PostgreSQL', startPostgres]];
if (hasMysql()) STARTS.push(['MariaDB', startMysql]);

test.each(STARTS)(
  "a lock with renew: 'thread' in %s is not granted while its holder is blocked for 3 ttl",
  async (_, start) => {
    database = await start();
    const { url, store } = database;
    const options = { renew: 'thread' as const };
    contest = await Contest.start([store], { program, urls: [url], key: 'k', options });
    const { granted, after } = await contest.blockedFor(3);
    expect(granted).toBeUndefined();
    expect(after).toMatchObject({ held: true, aborted: false });
    expect(await contest.holder.ask('release')).toMatchObject({ held: false, aborted: false });
    expect(await contest.grantedUntil()).toBeDefined();
    await contest.holder.ask('close');
    expect(await contest.holder.exited).toBe(0);
  },
);
