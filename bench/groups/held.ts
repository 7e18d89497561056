import { setTimeout as sleep } from 'node:timers/promises';
import type { Contender } from '../contenders/contender.js';
import { type Figure, once, type Sample } from '../measure/rounds.js';
import { Servers } from '../measure/servers.js';
import { withWorkers } from '../measure/workers.js';
import type { ResultTable } from '../report/tables.js';
import { distinct, fit, type Group, nodesTitle, type Plan, times } from './group.js';

/**
 * Returns the ttl of the held locks in milliseconds. It is short in a trial, but long enough for a busy machine to
 * renew in time. Renewals are due each third of the ttl, so a measurement shorter than a third may see no renewal.
 */
export function heldTtl({ effort }: Plan): number {
  return effort < 0.5 ? 5_000 : 10_000;
}

/** Measures many locks that are held for long. */
export const held: Group = {
  name: 'held',
  about: 'what 10,000 held locks with a ttl of 10 s cost while they are renewed',
  async run(plan) {
    const tables: ResultTable[] = [];
    const count = times(10_000, plan, 100);
    const ttl = heldTtl(plan);
    for (const nodes of plan.nodes) {
      const servers = await Servers.start(nodes);
      try {
        await servers.oldEnough();
        const rows = new Map<string, Readonly<Record<string, Figure>>>();
        const contenders = distinct(fit(plan.contenders, nodes));
        // A measurement takes ten seconds, so only our package is measured on several nodes.
        for (const contender of nodes === 1 ? contenders : contenders.filter(({ name }) => name === 'ours')) {
          const sample = await hold(contender, servers, count, ttl);
          if (sample) rows.set(contender.name, once(sample));
        }
        tables.push({
          title: `${count} locks held, ttl ${ttl / 1_000} s, ${nodesTitle(nodes)}`,
          rows,
          columns: [
            { figure: 'commands', title: 'commands per lock, second and node', digits: 4 },
            { figure: 'cpu', title: 'client CPU, % of a core', digits: 1 },
            { figure: 'heap', title: 'heap per lock, bytes', digits: 0 },
            { figure: 'kept', title: 'kept, %', digits: 1 },
          ],
          notes: nodes === 1 ? ['Contenders without renewal are missing.'] : [],
        });
      } finally {
        await servers.stop();
      }
    }
    return { tables };
  },
};

/**
 * Measures held locks of a library.
 *
 * @returns `undefined` for a library without renewal
 */
export function hold(
  contender: Contender,
  servers: Servers,
  count: number,
  ttl: number,
): Promise<Sample | undefined> {
  return withWorkers(1, async ([worker]) => {
    if (!worker || contender.name === 'murlock') return undefined;
    const { name } = contender;
    await worker.ask('open', { name, urls: servers.urls });
    const keys = Array.from({ length: count }, (_, index) => `held:${name}:${index}`);
    const acquired = await worker.ask('hold', { keys, ttl, watched: false });
    const cpuBefore = (await worker.ask('cpu', undefined)) ?? NaN;
    const before = await servers.sent(contender.sends);
    await sleep(ttl);
    const sent = (await servers.sent(contender.sends)) - before;
    const cpu = ((await worker.ask('cpu', undefined)) ?? NaN) - cpuBefore;
    const sample = {
      commands: sent / count / (ttl / 1_000),
      cpu: (100 * cpu) / ttl,
      heap: acquired?.heap ?? NaN,
      kept: (100 * (await servers.locksOf(`held:${name}:`, contender.linger))) / count,
    };
    await worker.ask('release', { inFlight: count }, 20_000);
    return sample;
  });
}
