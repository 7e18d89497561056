import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from '../contenders/contender.js';
import { type Figure, once, type Sample } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { Worker } from '../measure/workers.js';
import type { ResultTable } from '../report/tables.js';
import { distinct, fit, type Group, nodesTitle, progress, times } from './group.js';

const IN_FLIGHT = 64;
const KEYS = 100_000;

/** Measures the keys that stay in Redis after the release of their locks. */
export const leftovers: Group = {
  name: 'leftovers',
  about: `what is left in Redis a minute after ${KEYS.toLocaleString('en')} different keys were locked and released`,
  async run(plan) {
    const tables: ResultTable[] = [];
    const count = times(KEYS, plan, 100);
    const seconds = plan.effort < 0.5 ? 1 : 60;
    // For each library the group waits a minute. These minutes overlap: the minute of the first library is nearly over
    // when the minute of the last library begins.
    const waiting: { readonly nodes: number; readonly name: string; readonly sample: Promise<Sample> }[] = [];
    const ends: (() => Promise<void>)[] = [];
    try {
      for (const nodes of plan.nodes) {
        const contenders = distinct(fit(plan.contenders, nodes));
        // Each library needs servers and a process of its own, so only our package is measured on several nodes.
        for (const contender of nodes === 1 ? contenders : contenders.filter(({ name }) => name === 'ours')) {
          progress(`${contender.name}, ${nodesTitle(nodes)}`);
          const { sample, end } = await visit(contender, nodes, count, seconds);
          waiting.push({ nodes, name: contender.name, sample });
          ends.push(end);
        }
      }
      progress(`waiting for ${seconds} s`);
      for (const nodes of plan.nodes) {
        const rows = new Map<string, Readonly<Record<string, Figure>>>();
        for (const each of waiting) if (each.nodes === nodes) rows.set(each.name, once(await each.sample));
        tables.push({
          title: `Left in Redis after locks on ${count.toLocaleString('en')} keys, ${nodesTitle(nodes)}, sum of the nodes`,
          rows,
          columns: [
            { figure: 'keysAtOnce', title: 'at once: keys', digits: 0 },
            { figure: 'bytesAtOnce', title: 'kB', digits: 0 },
            { figure: 'keys', title: `${seconds} s after the last release: keys`, digits: 0 },
            { figure: 'bytes', title: 'kB', digits: 0 },
          ],
          notes: [
            'Bytes: growth of used_memory since the first lock, without the memory of connections. The clients stay connected.',
          ],
        });
      }
      return { tables };
    } finally {
      await Promise.all(ends.map((end) => end()));
    }
  },
};

/** Locks and releases each key once. The sample has what is left in Redis, immediately and later. */
async function visit(
  { name }: Contender,
  nodes: number,
  count: number,
  seconds: number,
): Promise<{ sample: Promise<Sample>; end: () => Promise<void> }> {
  const servers = await Servers.start(nodes);
  const worker = new Worker();
  const end = async (): Promise<void> => {
    await worker.end();
    await servers.stop();
  };
  try {
    await servers.oldEnough();
    const fresh = await servers.stored();
    await worker.must('open', { name, urls: servers.urls });
    await worker.must('visit', { start: 'left:', inFlight: IN_FLIGHT, count });
    const atOnce = await servers.stored();
    const later = async (): Promise<Sample> => {
      await sleep(1_000 * seconds);
      const left = await servers.stored();
      return {
        keysAtOnce: atOnce.keys,
        bytesAtOnce: (atOnce.bytes - fresh.bytes) / 1_000,
        keys: left.keys,
        bytes: (left.bytes - fresh.bytes) / 1_000,
      };
    };
    const sample = later();
    // The caller awaits the sample later, or never if there is an error first. Until then a rejection must not end the
    // process.
    sample.catch(() => undefined);
    return { sample, end };
  } catch (error) {
    await end();
    throw error;
  }
}
