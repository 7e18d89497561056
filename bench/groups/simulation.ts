import { ours } from '../contenders/ours.js';
import { once, prefixed, type Sample } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { mean, median, quantile } from '../measure/statistics.js';
import type { Line } from '../report/plot.js';
import type { ResultTable } from '../report/tables.js';
import { Poller, type Tally, Waiter } from '../simulation/instance.js';
import { type Assumptions, Server, World } from '../simulation/world.js';
import { type Group, progress, times } from './group.js';

const HOLD = 5;
const NEAR = 0.5;
const ROUND_TRIPS = [1, 10, 40, 80];
const INSTANCES = [10, 100, 500];

/** Simulates more instances and longer network paths than one machine has. */
export const simulation: Group = {
  name: 'simulation',
  about: `simulated: many instances, and round trips of ${ROUND_TRIPS.join(', ')} ms between regions`,
  async run(plan) {
    progress('calibration on one real server');
    const measured = await calibrate(times(5_000, plan, 100));
    const seconds = times(60, plan, 5);
    const rows = new Map<string, ReturnType<typeof once>>();
    const lines = new Map<string, [number, number][]>();
    for (const nodes of [1, 5]) {
      for (const far of ROUND_TRIPS) {
        for (const instances of INSTANCES) {
          const assumptions = { ...measured, near: Math.min(NEAR, far), far };
          const sample = {
            ...prefixed('waits', simulate(Waiter, nodes, instances, seconds, assumptions)),
            ...prefixed('polls', simulate(Poller, nodes, instances, seconds, assumptions)),
          };
          rows.set(`${nodes} nodes, ${far} ms, ${instances} instances`, once(sample));
          if (instances !== 100) continue;
          for (const kind of ['waits', 'polls']) {
            const name = `${kind === 'waits' ? 'ours' : 'polling'}, ${nodes} nodes`;
            lines.set(name, [...(lines.get(name) ?? []), [far, sample[`${kind}.handOver`] ?? NaN]]);
          }
        }
      }
    }
    const table: ResultTable = {
      title: `Simulated: one lock that all instances want, held for ${HOLD} ms`,
      rows,
      columns: [
        { figure: 'waits.perSecond', title: 'locks/s', digits: 1 },
        { figure: 'waits.handOver', title: 'hand-over, ms', digits: 1 },
        { figure: 'waits.longest', title: 'longest wait to mean', digits: 1 },
        { figure: 'waits.requests', title: 'requests per lock', digits: 1 },
        { figure: 'polls.perSecond', title: 'polling: locks/s', digits: 1 },
        { figure: 'polls.handOver', title: 'hand-over, ms', digits: 1 },
        { figure: 'polls.longest', title: 'longest to mean', digits: 1 },
        { figure: 'polls.requests', title: 'requests', digits: 1 },
      ],
      notes: [
        `Assumed: servers and instances spread over 5 regions in turn; ${NEAR} ms within a region; each way takes half a round`,
        `trip, plus or minus a tenth; a server works ${Math.round(1_000 * measured.service)} us on a request and a client ${Math.round(1_000 * measured.client)} us, as measured just before;`,
        'no loss, no crash, clocks do not matter. Polling: all nodes every 200 to 300 ms.',
      ],
    };
    const plot = {
      file: 'simulation-hand-over',
      title: 'Simulated hand-over, 100 instances in 5 regions',
      xTitle: 'round trip between regions, ms',
      yTitle: 'milliseconds',
      lines: [...lines].map(([name, points]): Line => ({ name, points })),
    };
    return { tables: [table], plots: [plot] };
  },
};

function simulate(
  Kind: typeof Waiter | typeof Poller,
  nodes: number,
  instances: number,
  seconds: number,
  assumptions: Assumptions,
): Sample {
  const world = new World(assumptions);
  const servers = Array.from({ length: nodes }, (_, index) => new Server(index % 5));
  const tally: Tally = { waits: [], handOvers: [], releasedAt: undefined };
  for (let index = 0; index < instances; index++) {
    const instance = new Kind(index % 5, world, servers, HOLD, tally);
    world.after(Math.random() * 300, () => instance.want());
  }
  world.run(seconds * 1_000);
  const { waits, handOvers } = tally;
  return {
    perSecond: waits.length / seconds,
    handOver: median(handOvers),
    longest: quantile(waits, 1) / mean(waits),
    requests: world.requests / waits.length,
  };
}

/** Measures the time of a request on a real server and on a client. */
async function calibrate(cycles: number): Promise<{ service: number; client: number }> {
  const servers = await Servers.start(1);
  try {
    const session = await ours.open(servers.urls);
    const cycle = async (): Promise<unknown> => (await session.acquire('calibration', 10_000))();
    for (let index = 0; index < cycles / 5; index++) await cycle();
    const [servedBefore, usedBefore] = [await servers.worked(), process.cpuUsage()];
    for (let index = 0; index < cycles; index++) await cycle();
    const { user, system } = process.cpuUsage(usedBefore);
    const served = (await servers.worked()) - servedBefore;
    await session.close();
    return { service: served / cycles / 2, client: (user + system) / 1_000 / cycles / 2 };
  } finally {
    await servers.stop();
  }
}
