import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { execFileSync } from 'node:child_process';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { cleanUpLeftovers } from '../test/support/leftovers.js';
import { contender, CONTENDERS } from './contenders/contenders.js';
import type { Contender } from './contenders/contender.js';
import type { Findings, Group, Plan } from './groups/group.js';
import { failures } from './groups/failures.js';
import { growth } from './groups/growth.js';
import { handOver } from './groups/hand-over.js';
import { held } from './groups/held.js';
import { latency } from './groups/latency.js';
import { overhead } from './groups/overhead.js';
import { simulation } from './groups/simulation.js';
import { throughput } from './groups/throughput.js';
import { weight } from './groups/weight.js';
import { installPeers, ROOT, versionOf } from './peers.js';
import { inSvg } from './report/plot.js';
import { inMarkdown, inTerminal } from './report/tables.js';

const GROUPS: readonly Group[] = [
  latency,
  throughput,
  handOver,
  held,
  failures,
  overhead,
  growth,
  simulation,
  weight,
];

const USAGE = `npm run bench -- [group ...] [options]

  groups      ${GROUPS.map(({ name }) => name).join(', ')}; all of them by default
  --only      contenders, separated by commas: ${CONTENDERS.map(({ name }) => name).join(', ')}
  --nodes     numbers of nodes, separated by commas; 1,5 by default
  --effort    multiplies the repetitions; 1 by default
  --out       folder for results.json, results.md and the plots; dist/bench-results by default`;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    only: { type: 'string' },
    nodes: { type: 'string', default: '1,5' },
    effort: { type: 'string', default: '1' },
    out: { type: 'string', default: 'dist/bench-results' },
    help: { type: 'boolean', default: false },
  },
});

if (values.help) console.log(USAGE);
else {
  try {
    await bench();
  } finally {
    await cleanUpLeftovers();
  }
}

async function bench(): Promise<void> {
  const contenders = values.only?.split(',').map(contender) ?? CONTENDERS;
  const plan: Plan = {
    contenders,
    effort: Number(values.effort),
    nodes: values.nodes.split(',').map(Number),
  };
  if (contenders.some(({ name }) => name !== 'raw' && name !== 'ours')) installPeers();
  const machine = describeMachine();
  console.log(machine.join('\n'));
  const results: Record<string, Findings> = {};
  for (const group of positionals.length > 0 ? positionals.map(groupNamed) : GROUPS) {
    const begun = performance.now();
    console.log(`\n== ${group.name}: ${group.about}`);
    const findings = await group.run(plan);
    for (const table of findings.tables) console.log(inTerminal(table));
    console.log(`(${Math.round((performance.now() - begun) / 1_000)} s)`);
    results[group.name] = findings;
    // After each, as somebody may have seen enough.
    write(contenders, machine, results);
  }
  console.log(`\nWritten to ${values.out}`);
}

function groupNamed(name: string): Group {
  const group = GROUPS.find((each) => each.name === name);
  if (!group) throw new Error(`There is no group "${name}".\n\n${USAGE}`);
  return group;
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

/** Everything for machines (JSON), the tables for a page (Markdown), and the plots (SVG). */
function write(
  contenders: readonly Contender[],
  machine: readonly string[],
  results: Record<string, Findings>,
): void {
  const folder = resolve(ROOT, values.out);
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
