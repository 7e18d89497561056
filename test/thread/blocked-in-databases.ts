import { afterEach, expect, test } from '@jest/globals';
import type { Store } from '../../lib/core/ports.js';
import { etcd } from '../../lib/etcd/index.js';
import { mysql } from '../../lib/mysql/index.js';
import { postgres } from '../../lib/postgres/index.js';
import { zookeeper } from '../../lib/zookeeper/index.js';
import { hasEtcd, startEtcd } from '../support/etcd-server.js';
import { hasMysql, startMysqlServer } from '../support/mysql-server.js';
import { until } from '../support/until.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { newTerms } from '../support/postgres-store.js';
import { hasZooKeeper, startZooKeeper } from '../support/zookeeper-server.js';
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

async function startEtcdNode(): Promise<Database> {
  const server = await startEtcd();
  const { url } = server;
  return { url, store: etcd({ endpoints: url }).openStore(newTerms()), stop: () => server.stop() };
}

async function startZooKeeperNode(): Promise<Database> {
  const server = await startZooKeeper();
  const { address } = server;
  const store = zookeeper({ connectionString: address }).openStore(newTerms());
  return { url: `zookeeper://${address}`, store, stop: () => server.stop() };
}

const STARTS: [name: string, start: () => Promise<Database>][] = [['PostgreSQL', startPostgres]];
if (hasMysql()) STARTS.push(['MariaDB', startMysql]);
if (hasEtcd()) STARTS.push(['etcd', startEtcdNode]);
if (hasZooKeeper()) STARTS.push(['ZooKeeper', startZooKeeperNode]);

let databases: readonly Database[] = [];
let contests: readonly Contest[] = [];

afterEach(async () => {
  await Promise.all(contests.map((contest) => contest.end()));
  await Promise.all(databases.map((database) => database.stop()));
});

/** Does the same in all databases at a time, which takes no longer than in one: the holders sleep. */
async function inEach<Result>(act: (contest: Contest) => Promise<Result>): Promise<Record<string, Result>> {
  const results = await Promise.all(contests.map(act));
  return Object.fromEntries(STARTS.map(([name], index) => [name, results[index]!]));
}

function everywhere(outcome: unknown): object {
  return Object.fromEntries(STARTS.map(([name]) => [name, outcome]));
}

/** Blocks the holder of a lock in each database for so many ttl. */
export function testInDatabases(ttls: number, ttl: number): void {
  test(`a lock with renew: 'thread' in a database is not granted while its holder is blocked for ${ttls} ttl, but after its release`, async () => {
    const program = await holderProgram();
    databases = await Promise.all(STARTS.map(([, start]) => start()));
    contests = await Promise.all(
      databases.map(({ url, store }) =>
        Contest.start([store], { program, urls: [url], key: 'k', options: { renew: 'thread', ttl } }),
      ),
    );
    const blocked = await inEach((contest) => contest.blockedFor(ttls));
    const isHeld = expect.objectContaining({ held: true, aborted: false });
    expect(blocked).toEqual(everywhere({ granted: undefined, after: isHeld }));
    // In etcd the thread moves the keys to another expiry, which the release of the holder must find.
    await inEach(({ holder }) =>
      until(async () => (await holder.ask(`extend ${10 * ttl}`)).remaining > 5 * ttl),
    );
    const released = await inEach(async (contest) => {
      const since = performance.now();
      await contest.holder.ask('release');
      return (await contest.grantedUntil())! - since < 5 * ttl;
    });
    expect(released).toEqual(everywhere(true));
    const codes = await inEach(async ({ holder }) => {
      await holder.ask('close');
      return await holder.exited;
    });
    expect(codes).toEqual(everywhere(0));
  });
}
