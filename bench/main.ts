import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { execFileSync } from 'node:child_process';
import { dirname, join, resolve } from 'node:path';
import { cleanUpLeftovers } from '../test/support/leftovers.js';
import { type BenchArguments, readArguments, USAGE } from './arguments.js';
import type { Contender } from './contenders/contender.js';
import type { Findings } from './groups/group.js';
import { installPeers, ROOT, versionOf } from './peers.js';
import { inSvg } from './report/plot.js';
import { inMarkdown, inTerminal } from './report/tables.js';

/** Exit code for a wrong command line; the command `nestjs-redlock` has the same exit code. */
const WRONG_USAGE = 2;

await main();

async function main(): Promise<void> {
  let given: BenchArguments;
  try {
    given = readArguments(process.argv.slice(2));
  } catch (error) {
    console.error((error as Error).message);
    process.exitCode = WRONG_USAGE;
    return;
  }
  if (given.help) {
    console.log(USAGE);
    return;
  }
  try {
    await bench(given);
  } finally {
    await cleanUpLeftovers();
  }
}

async function bench({ groups, plan, out }: BenchArguments): Promise<void> {
  const { contenders } = plan;
  if (contenders.some(({ name }) => name !== 'raw' && name !== 'ours')) installPeers();
  const machine = describeMachine();
  console.log(machine.join('\n'));
  const results: Record<string, Findings> = {};
  for (const group of groups) {
    const begun = performance.now();
    console.log(`\n== ${group.name}: ${group.about}`);
    const findings = await group.run(plan);
    for (const table of findings.tables) console.log(inTerminal(table));
    console.log(`(${Math.round((performance.now() - begun) / 1_000)} s)`);
    results[group.name] = findings;
    // The results are written after each group, because the user may stop the program early.
    write(out, contenders, machine, results);
  }
  console.log(`\nWritten to ${out}`);
}

function describeMachine(): string[] {
  const redis = execFileSync('redis-server', ['--version'], { encoding: 'utf8' });
  const processors = cpus();
  return [
    `Node ${process.versions.node}, ${/v=\S+/.exec(redis)?.[0].replace('v=', 'Redis ') ?? redis.trim()}, ` +
      `${processors.length} x ${processors[0]?.model.trim() ?? 'processor'}, ${Math.round(totalmem() / 2 ** 30)} GiB`,
    'Servers and client share the machine; --save "" --appendonly no for all; loopback, no TLS.',
  ];
}

/** Writes all results as JSON, the tables as Markdown, and the plots as SVG. */
function write(
  out: string,
  contenders: readonly Contender[],
  machine: readonly string[],
  results: Record<string, Findings>,
): void {
  const folder = resolve(ROOT, out);
  const put = (name: string, contents: string): void => {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), contents);
  };
  const who = contenders.map(({ name, packages, lacks }) => ({
    name,
    lacks,
    versions: Object.fromEntries(packages.map((each) => [each, versionOf(each)])),
  }));
  const all = Object.values(results);
  const asObjects = (_key: string, value: unknown): unknown =>
    value instanceof Map ? Object.fromEntries(value) : value;
  put('results.json', `${JSON.stringify({ machine, contenders: who, results }, asObjects, 2)}\n`);
  put(
    'results.md',
    `${all.flatMap(({ tables }) => tables.map((table) => inMarkdown(table))).join('\n\n')}\n`,
  );
  for (const plot of all.flatMap(({ plots = [] }) => plots)) put(`${plot.file}.svg`, inSvg(plot));
}
