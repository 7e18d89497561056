import { setTimeout as sleep } from 'node:timers/promises';
import type { Library } from '../passed-in.js';
import { countOf, type Play, repeat, type Scenario, some } from '../scenario.js';
import { crash } from './crashes.js';

// The application passes in clients of node-redis or of Valkey GLIDE. These clients queue commands while they are not
// connected, and reconnect.

const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always'];

// A client is an adapter over the same store, and the other scenarios play these faults with the client of the library.
// So the short form plays only the faults after which the queue and the reconnection of each client count.

export const nodeRedis = scenariosOf('node-redis').map(inShortForm(/SIGKILL|cut in flight|delivered late/));

export const valkeyGlide = scenariosOf('Valkey GLIDE').map(inShortForm(/delivered late/));

/** Leaves the scenarios with other names out of the short form. */
function inShortForm(names: RegExp): (scenario: Scenario) => Scenario {
  return (scenario) => (names.test(scenario.name) ? scenario : { ...scenario, onlyLong: true });
}

function scenariosOf(library: Library): readonly Scenario[] {
  return [
    {
      name: `${library}: SIGKILL of the only node, persistent`,
      stage: { nodes: 1, nodeArgs: DURABLE },
      clients: 4,
      client: { passesIn: library },
      seconds: [3, 20],
      faults: (play) => repeat(play, 1_000, () => crash(play.stage.servers, 200)),
    },
    {
      name: `${library}: SIGSTOP of the only node beyond the ttl`,
      stage: { nodes: 1 },
      clients: 4,
      client: { passesIn: library, ttl: 800, leastHold: 1_500, hold: 1_500 },
      seconds: [3, 20],
      faults: (play) =>
        repeat(play, 500, async () => {
          const [server] = play.stage.servers;
          server!.pause();
          await sleep(1_200);
          server!.resume();
        }),
      enough: (events) => countOf(events, 'lost') > 0,
    },
    network(library, 'connections to two of three nodes cut in flight', 20, (proxy) => proxy.cut()),
    network(library, 'replies of two of three nodes dropped (S6)', 300, (proxy) => proxy.dropReplies()),
    network(library, 'requests to two of three nodes delivered late (S15, S16)', 400, (proxy) =>
      proxy.holdRequests(),
    ),
  ];
}

/** Makes a scenario that causes a fault on two of three connections for a time, again and again. */
function network(
  library: Library,
  name: string,
  duration: number,
  fault: (proxy: Play['stage']['proxies'][number]) => void,
): Scenario {
  return {
    name: `${library}: ${name}`,
    stage: { nodes: 3, proxies: true },
    clients: 4,
    client: { passesIn: library, ttl: 3_000 },
    seconds: [2, 10],
    faults: (play) =>
      repeat(play, 200, async () => {
        const proxies = some(2, play.stage.proxies);
        for (const proxy of proxies) fault(proxy);
        await sleep(duration);
        await Promise.all(proxies.map((proxy) => proxy.heal()));
      }),
  };
}
