import { describe } from '@jest/globals';
import type { Redlock } from '../../../lib/redlock/redlock.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { redlockOver } from '../../support/core.js';
import { hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { type ContendedServer, contentionContract, contentionFor } from '../contention-contract.js';

// `npm run test:faults` runs longer, and cuts connections, too.

const LONG = process.env['FAULTS'] === 'long';

async function start(): Promise<ContendedServer> {
  const server = await startEtcd();
  const proxy = await startTcpProxy(server);
  return {
    terms: contentionFor(LONG ? 10_000 : 5_500),
    async open(): Promise<Redlock> {
      const store = new EtcdStore({ endpoints: proxy.url.replace(/^\w+:/, 'http:') }, newTerms());
      await store.connect();
      return redlockOver([store], PATIENT);
    },
    restart: () => server.restart(),
    pause: () => server.pause(),
    resume: () => server.resume(),
    cut: async () => proxy.cut(),
    async forget() {
      for (const name of await server.holders())
        await server.call('kv/deleterange', { key: Buffer.from(name).toString('base64') });
    },
    async orphans() {
      await until(async () => (await server.holders()).length === 0);
      return [];
    },
    async stop() {
      await proxy.close();
      await server.stop();
    },
  };
}

(hasEtcd() ? describe : describe.skip)('on a real etcd', () => {
  const faults = ['restart', 'pause', ...(LONG ? ['cut' as const] : [])] as const;
  contentionContract('etcd', { start, processes: 3, least: 2, times: 1, pause: 3_000, faults });
});
