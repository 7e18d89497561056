import { parseArgs } from 'node:util';
import { BREAKS } from './breaks.js';
import { loadLibrary } from './node/load.js';
import type { FaultKind } from './plans/faults.js';
import { planOf } from './plans/profile.js';
import { readRegressions } from './regressions.js';
import { printBreaks, printReplays, printSearch, printSeed } from './reports.js';
import { fixedAndNew, fromOn, inTurn } from './search.js';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    from: { type: 'string' },
    seeds: { type: 'string' },
    seconds: { type: 'string' },
    hours: { type: 'string' },
    break: { type: 'string' },
    regressions: { type: 'boolean', default: false },
    regression: { type: 'string' },
    shrink: { type: 'boolean', default: false },
    hashes: { type: 'boolean', default: false },
    only: { type: 'string' },
    rule: { type: 'string' },
    save: { type: 'string' },
  },
});

const seconds = values.hours === undefined ? Number(values.seconds ?? 60) : 3_600 * Number(values.hours);
const began = performance.now();
const isOver = (): boolean => performance.now() - began > seconds * 1_000;
const from = Number(values.from ?? 1);
const most = values.seeds === undefined ? Infinity : Number(values.seeds);

if (values.break === 'list') {
  for (const { name } of BREAKS) console.log(name);
} else if (values.break !== undefined) {
  const all = values.break === 'all' || values.break === 'recorded';
  const chosen = BREAKS.filter(({ name }) => all || name === values.break);
  if (chosen.length === 0) throw new Error(`--break ${values.break}: no such error; see --break list`);
  await printBreaks(chosen, {
    recorded: values.break === 'recorded',
    from,
    // The budget of each error is a number of seeds, so that a busy machine does not hide an error.
    seconds: values.seconds === undefined ? Infinity : Number(values.seconds),
  });
} else if (values.regressions) {
  const library = await loadLibrary();
  await inTurn(() => printReplays(readRegressions(), library));
} else {
  const library = await loadLibrary();
  const regression = readRegressions().find(({ name }) => name === values.regression);
  if (values.regression !== undefined && !regression) throw new Error(`no regression ${values.regression}`);
  const only = values.only?.split(',') as FaultKind[] | undefined;
  const plan =
    regression?.plan ?? (values.seed === undefined ? undefined : planOf(Number(values.seed), only));
  const options = { shrinks: values.shrink, isOver, rule: values.rule, save: values.save };
  if (plan) await inTurn(() => printSeed(plan, library, options));
  else {
    const seeds = values.from === undefined && most === Infinity ? fixedAndNew() : fromOn(from, most);
    await printSearch(library, { seeds, isOver, hashes: values.hashes, only });
  }
}
