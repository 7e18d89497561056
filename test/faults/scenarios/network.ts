import { setTimeout as sleep } from 'node:timers/promises';
import type { TcpProxy } from '../../support/tcp-proxy.js';
import { repeat, type Scenario, some } from '../scenario.js';

/** Makes a scenario that causes a fault on some connections for a time, again and again. */
function faulty(name: string, howMany: number, duration: number, fault: (proxy: TcpProxy) => void): Scenario {
  return {
    name,
    stage: { nodes: 3, proxies: true },
    clients: 4,
    client: { ttl: 3_000 },
    seconds: [2, 10],
    async faults(play) {
      await repeat(play, 200, async () => {
        const proxies = some(howMany, play.stage.proxies);
        for (const proxy of proxies) fault(proxy);
        await sleep(duration);
        await Promise.all(proxies.map((proxy) => proxy.heal()));
      });
    },
  };
}

export const network: readonly Scenario[] = [
  ...[
    faulty('replies delayed by up to 150 ms on all nodes', 3, 400, (proxy) =>
      proxy.delayReplies(Math.random() * 150),
    ),
    faulty('requests delayed by up to 150 ms on all nodes (S16)', 3, 400, (proxy) =>
      proxy.delayRequests(Math.random() * 150),
    ),
    faulty('one of three nodes accepts connections and never answers', 1, 700, (proxy) => proxy.blackHole()),
  ].map((scenario) => ({ ...scenario, onlyLong: true })),
  faulty('replies of two of three nodes dropped (S6)', 2, 300, (proxy) => proxy.dropReplies()),
  faulty('requests to two of three nodes delivered late (S15, S16)', 2, 400, (proxy) => proxy.holdRequests()),
  faulty('connections to two of three nodes cut in flight', 2, 20, (proxy) => proxy.cut()),
];
