import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Cluster } from 'ioredis';
import type { Store } from '../../lib/core/ports.js';
import { storeOver } from '../support/clients.js';
import { newFleet, nodesTo } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startMasters } from '../support/redis-cluster.js';
import { startSentinelGroup } from '../support/sentinel-group.js';
import { certificateFiles, startTlsServer } from '../support/tls-server.js';
import { Contest, type HolderOptions, holderProgram } from './blocked-holder.js';

/** The nodes of a holder, and the store of the other process on the same servers. */
interface Variant {
  readonly store: Store;
  readonly nodes: Pick<HolderOptions, 'urls' | 'hasClients' | 'isCluster'>;
}

async function overTls(): Promise<Variant> {
  const files = await certificateFiles();
  const { redis, port } = await startTlsServer(files, 'yes');
  const { cert, key } = files;
  const options = { host: redis.host, port, tls: { ca: cert, cert, key } };
  return { store: nodesTo([redis.url])[0]!, nodes: { urls: [JSON.stringify(options)] } };
}

async function bySentinel(): Promise<Variant> {
  const { master, sentinels } = await startSentinelGroup();
  const options = { name: 'locks', sentinels: sentinels.map(({ host, port }) => ({ host, port })) };
  return { store: nodesTo([master.url])[0]!, nodes: { urls: [JSON.stringify(options)] } };
}

async function inCluster(): Promise<Variant> {
  const servers = await startMasters([], [], []);
  const urls = servers.map(({ url }) => url);
  const client = new Cluster(urls);
  cleanUpAfterTests(async () => client.disconnect());
  return { store: storeOver(client, newFleet()), nodes: { urls, hasClients: true, isCluster: true } };
}

const VARIANTS = { 'TLS by options': overTls, 'Sentinel by options': bySentinel, 'a Cluster': inCluster };

let contests: [name: string, contest: Contest][] = [];

beforeAll(async () => {
  const program = await holderProgram();
  contests = await Promise.all(
    Object.entries(VARIANTS).map(async ([name, start]): Promise<[string, Contest]> => {
      const { store, nodes } = await start();
      const holder: HolderOptions = { program, ...nodes, key: 'k', options: { renew: 'thread' } };
      return [name, await Contest.start([store], holder)];
    }),
  );
});

afterAll(async () => {
  await Promise.all(contests.map(([, contest]) => contest.end()));
});

test("a lock with renew: 'thread' over TLS, by Sentinel or in a Cluster is not granted while its holder is blocked for longer than its ttl, but after its release", async () => {
  const outcome = async ([name, contest]: [string, Contest]): Promise<object> => {
    const blocked = await contest.blockedFor(1.5);
    await contest.holder.ask('release');
    return { name, ...blocked, isGrantedLater: (await contest.grantedUntil()) !== undefined };
  };
  const after: unknown = expect.objectContaining({ held: true, aborted: false });
  expect(await Promise.all(contests.map(outcome))).toEqual(
    Object.keys(VARIANTS).map((name) => ({ name, granted: undefined, after, isGrantedLater: true })),
  );
});
