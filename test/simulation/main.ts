import { parseArgs } from 'node:util';
import { loadLibrary } from './node/load.js';
import { described } from './plans/faults.js';
import { planOf } from './plans/profile.js';
import { noTotals, runSeed } from './search.js';
import { Simulation } from './simulation.js';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    from: { type: 'string', default: '1' },
    seeds: { type: 'string' },
    seconds: { type: 'string' },
    hours: { type: 'string' },
    hashes: { type: 'boolean', default: false },
    log: { type: 'boolean', default: false },
  },
});

const library = await loadLibrary();

/** Repeats the world of one seed, and prints its story. */
function replay(seed: number): void {
  const plan = planOf(seed);
  const { events, ...world } = plan;
  console.log(`world   ${JSON.stringify(world)}`);
  for (const event of events) console.log(`fault   ${described(event)}`);
  const { log, findings, hash } = new Simulation(plan, library, { keepsLog: true }).run();
  if (values.log) for (const line of log) console.log(line);
  for (const { rule, text, time } of findings)
    console.log(`broken  ${(time / 1_000).toFixed(2)} s  ${rule}: ${text}`);
  console.log(`hash    ${hash}`);
  process.exitCode = findings.length > 0 ? 1 : 0;
}

function search(): void {
  const seconds = values.hours === undefined ? Number(values.seconds ?? 60) : 3_600 * Number(values.hours);
  const most = values.seeds === undefined ? Infinity : Number(values.seeds);
  const totals = noTotals();
  const began = performance.now();
  const before = process.cpuUsage();
  // A stack costs more than most errors of a simulation.
  if (!values.log) Error.stackTraceLimit = 0;
  const from = Number(values.from);
  for (let seed = from; seed < from + most; seed++) {
    if (performance.now() - began > seconds * 1_000) break;
    const { findings, hash, events } = runSeed(seed, library, totals);
    if (values.hashes) console.log(`${seed} ${hash} ${events}`);
    for (const { rule, text } of findings) console.log(`seed ${seed} broke ${rule}: ${text}`);
  }
  const { user, system } = process.cpuUsage(before);
  const minutes = (user + system) / 60_000_000;
  console.log(
    `${totals.seeds} seeds, ${totals.hours.toFixed(2)} simulated hours with ${totals.acquisitions} acquisitions; ` +
      `${(totals.hours / minutes).toFixed(1)} hours for a minute of CPU; ${totals.failed.length} seeds broke a promise`,
  );
  process.exitCode = totals.failed.length > 0 ? 1 : 0;
}

// Worlds run outside of every promise and tick of this program.
setImmediate(() => (values.seed === undefined ? search() : replay(Number(values.seed))));
