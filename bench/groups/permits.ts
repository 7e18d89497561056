import { once, type Sample } from '../measure/rounds.js';
import { LongerWay } from '../measure/longer-way.js';
import { Servers } from '../measure/servers.js';
import { withWorkers, type Worker } from '../measure/workers.js';
import type { ResultTable } from '../report/tables.js';
import { type Group, nodesTitle, type Plan, progress, times, withThree } from './group.js';

const PERMITS = [3, 10, 50];
const LOADS = [0.3, 0.7, 0.95];
const PROCESSES = 4;
/** Shortest time of a round trip, and its average variation, in milliseconds, as between machines of one region. */
const ADDED = 1;
const JITTER = 0.3;
/** Largest number of requests per second. A higher rate would measure the speed of the machine. */
const MOST_PER_SECOND = 200;
const SHORTEST_HOLD = 20;

/** Measures the share of permits that take only one round trip, although several nodes must grant the same slot. */
export const roundTrips: Group = {
  name: 'permits',
  about: 'permits on several nodes: how often one round trip is enough, by load',
  async run(plan) {
    const tables: ResultTable[] = [];
    for (const nodes of withThree(plan)) if (nodes > 1) tables.push(await onNodes(nodes, plan));
    return { tables };
  },
};

async function onNodes(nodes: number, plan: Plan): Promise<ResultTable> {
  const servers = await Servers.start(nodes);
  try {
    await servers.oldEnough();
    const way = await LongerWay.open(servers.urls, ADDED, JITTER);
    try {
      const rows = new Map<string, ReturnType<typeof once>>();
      await withWorkers(PROCESSES, async (workers) => {
        for (const each of PERMITS) {
          for (const load of LOADS) {
            progress(`${nodesTitle(nodes)}, ${each} permits, load ${load}`);
            rows.set(`${each} permits, load ${load}`, once(await offer(workers, way.urls, each, load, plan)));
          }
        }
      });
      return {
        title: `Permits asked for at random times, ${nodesTitle(nodes)}`,
        rows,
        columns: [
          { figure: 'first', title: 'granted in one round trip, %', digits: 1 },
          { figure: 'mended', title: 'one more trip for the slot, %', digits: 1 },
          { figure: 'raised', title: 'one more trip for the token, %', digits: 1 },
          { figure: 'anew', title: 'asked again, %', digits: 1 },
          { figure: 'refused', title: 'refused, % of all', digits: 1 },
          { figure: 'full', title: 'refused in theory by one node, %', digits: 1 },
          { figure: 'asked', title: 'asked', digits: 0 },
        ],
        notes: [
          `${PROCESSES} processes; a round trip takes ${ADDED} ms more than on the loopback interface, and each message a random time longer (${JITTER} ms on`,
          'average, exponential). Load: the share of the permits that would be held on average without refusals. Each request makes one attempt.',
          'Refused in theory by one node: by the formula Erlang B, from the measured requests and holds.',
        ],
      };
    } finally {
      await way.close();
    }
  } finally {
    await servers.stop();
  }
}

async function offer(
  workers: readonly Worker[],
  urls: readonly string[],
  permits: number,
  load: number,
  plan: Plan,
): Promise<Sample> {
  // Little's law: the average number of held permits is the rate of requests multiplied by `hold`.
  const hold = Math.max(SHORTEST_HOLD, (1_000 * permits) / MOST_PER_SECOND);
  const every = (hold * PROCESSES) / (permits * load);
  const within = times(10_000, plan, 400);
  const job = { urls, key: `offer:${permits}:${load}`, permits, hold, every, within };
  const found = await Promise.all(workers.map((worker) => worker.must('offer', job)));
  const sum = (of: keyof (typeof found)[number]): number =>
    found.reduce((total, each) => total + each[of], 0);
  const granted = sum('granted');
  const asked = sum('asked');
  return {
    asked,
    first: (100 * sum('first')) / granted,
    mended: (100 * sum('mended')) / granted,
    raised: (100 * sum('raised')) / granted,
    anew: (100 * sum('anew')) / asked,
    refused: (100 * (asked - granted)) / asked,
    // The formula uses the measured rate of requests and the measured time for which permits were held. That time is
    // longer than `hold`: a round trip and the delays of a busy machine are part of it.
    full: 100 * erlangB(permits, (asked / within) * (sum('held') / granted)),
  };
}

/**
 * Erlang's B formula: the share of time in which all permits are taken.
 *
 * @param servers - the number of permits
 * @param offered - the average number of permits that would be held if there were no limit
 */
function erlangB(servers: number, offered: number): number {
  let blocked = 1;
  for (let count = 1; count <= servers; count++) blocked = (offered * blocked) / (count + offered * blocked);
  return blocked;
}
