import type { Contender, Session } from '../contenders/contender.js';
import { Servers } from '../measure/servers.js';
import { withWorkers, type Worker } from '../measure/workers.js';

const WARM_UP = 200;

/** A library of the comparison, with its session in this process: its connections to the servers of the benchmark. */
export interface Opened {
  readonly contender: Contender;
  readonly session: Session;
}

/** Starts servers, opens all libraries on them, and closes libraries and servers afterwards. */
export async function withSessions<T>(
  nodes: number,
  contenders: readonly Contender[],
  use: (opened: readonly Opened[], servers: Servers) => Promise<T>,
): Promise<T> {
  const servers = await Servers.start(nodes);
  const opened: Opened[] = [];
  try {
    await servers.oldEnough();
    for (const contender of contenders) {
      const session = await contender.open(servers.urls);
      opened.push({ contender, session });
      // The first calls load scripts into the servers, and let V8 compile code.
      for (let call = 0; call < WARM_UP; call++) await session.withLock('warm-up', 10_000, async () => {});
    }
    return await use(opened, servers);
  } finally {
    for (const { session } of opened) await session.close();
    await servers.stop();
  }
}

/** A compared library in its own worker process. */
export interface Employed {
  readonly contender: Contender;
  readonly worker: Worker;
}

/** Addresses at which the libraries reach the servers, and a function that closes the network path to the servers. */
export interface Way {
  readonly urls: readonly string[];
  close(): Promise<void>;
}

/**
 * Starts servers, opens each library in its own process, and ends processes and servers afterwards.
 *
 * Libraries in one process would disturb each other. The garbage of one library would be collected in the measured time
 * of another library. And `withLock` of our package runs code in an AsyncLocalStorage: after that, Node 20 does more
 * work for each promise of the process (see the group `objects`). So a group measures `withLock` after all other calls.
 */
export async function withStaff<T>(
  nodes: number,
  contenders: readonly Contender[],
  use: (staff: readonly Employed[], servers: Servers) => Promise<T>,
  openWay: (servers: Servers) => Promise<Way> = directly,
): Promise<T> {
  const servers = await Servers.start(nodes);
  try {
    await servers.oldEnough();
    const way = await openWay(servers);
    try {
      return await withWorkers(contenders.length, async (workers) => {
        const staff = contenders.map((contender, index) => ({ contender, worker: workers[index]! }));
        for (const { contender, worker } of staff) {
          await worker.must('open', { name: contender.name, urls: way.urls });
          await worker.must('warmUp', { how: 'acquire', within: 1_500 });
        }
        return await use(staff, servers);
      });
    } finally {
      await way.close();
    }
  } finally {
    await servers.stop();
  }
}

function directly({ urls }: Servers): Promise<Way> {
  return Promise.resolve({ urls, close: () => Promise.resolve() });
}
