import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { bytesMade } from '../../bench/measure/allocations.js';
import { runCommand } from '../consumers/run-command.js';
import { compile } from '../faults/compile.js';

let compiled: string;
let out: string;

beforeAll(async () => {
  compiled = await compile(['lib', 'test/support', 'sample-app/demo', 'bench']);
  out = await mkdtemp(join(tmpdir(), 'bench-'));
});

afterAll(() => Promise.all([compiled, out].map((folder) => rm(folder, { recursive: true, force: true }))));

/** Runs as `npm run bench -- ...` does; whether the figures are good is nothing that a busy machine can tell. */
function bench(...args: string[]): Promise<string> {
  const main = join(compiled, 'bench', 'main.js');
  return runCommand(process.execPath, ['--expose-gc', main, ...args, '--out', out], { cwd: process.cwd() });
}

interface Row {
  readonly commands: { readonly median: number };
  readonly cycle: { readonly ratio: { readonly median: number } };
}

/** The medians of a table of a group, the first if it is not named, by contender and figure. */
async function medians(group: string, title?: string): Promise<(name: string, figure: string) => number> {
  const { results } = JSON.parse(await readFile(join(out, 'results.json'), 'utf8')) as {
    results: Record<
      string,
      { tables: { title: string; rows: Record<string, Record<string, { median: number }>> }[] }
    >;
  };
  const tables = results[group]?.tables;
  const rows = (title === undefined ? tables?.[0] : tables?.find((table) => table.title === title))?.rows;
  return (name, figure) => rows?.[name]?.[figure]?.median ?? NaN;
}

test('measures a group and writes the results', async () => {
  const output = await bench('latency', '--only', 'ours,raw', '--nodes', '1', '--effort', '0.05');
  expect(output).toContain('Latency of acquire and release, one node');
  expect(output).toContain('both p50, to raw');
  const results = JSON.parse(await readFile(join(out, 'results.json'), 'utf8')) as {
    results: { latency: { tables: { rows: Record<string, Row> }[] } };
  };
  const [latency] = results.results.latency.tables;
  // One command to acquire, one to release.
  expect(latency?.rows['raw']?.commands.median).toBe(2);
  expect(latency?.rows['ours']?.commands.median).toBe(2);
  expect(latency?.rows['raw']?.cycle.ratio.median).toBe(1);
});

test('measures memory made and kept, work of the server, and a slower connection', async () => {
  const groups = ['network', 'objects', 'server-time', 'leftovers'];
  const output = await bench(...groups, '--only', 'raw,ours', '--nodes', '1', '--effort', '0.02');
  for (const group of groups) expect(output).toContain(`== ${group}:`);

  // Two round trips with half a millisecond each; without that they take a twentieth of it.
  const network = await medians('network');
  expect(network('raw', 'cycle')).toBeGreaterThan(500);
  expect(network('ours', 'cycle')).toBeGreaterThan(500);
  expect(output).toMatch(/A PING takes 0\.\d+ ms/);

  const objects = await medians('objects');
  for (const name of ['raw', 'ours']) {
    for (const figure of ['acquire.1', 'acquire.64', 'withLock.1', 'withLock.64']) {
      expect(objects(name, figure)).toBeGreaterThan(1);
      expect(objects(name, figure)).toBeLessThan(500);
    }
  }

  const serverTime = await medians('server-time');
  for (const name of ['raw', 'ours']) {
    for (const figure of ['one.acquire', 'one.release', 'many.acquire', 'many.release'])
      expect(serverTime(name, figure)).toBeGreaterThan(0);
  }

  // Ours keeps a record of each key for a while.
  const leftovers = await medians('leftovers');
  expect(leftovers('raw', 'keysAtOnce')).toBe(0);
  expect(leftovers('ours', 'keysAtOnce')).toBe(2_000);
  expect(leftovers('ours', 'bytesAtOnce')).toBeGreaterThan(200);
});

test('counts the bytes of objects that are collected during the measurement, within a tenth', async () => {
  const ARRAYS = 20_000;
  let last: unknown;
  const made = await bytesMade(() => {
    // 8 bytes for each element, and 32 for the two objects that make an array.
    for (let index = 0; index < ARRAYS; index++) last = new Array(1_000).fill(index);
    return Promise.resolve(last);
  });
  expect(made / ARRAYS / 8_032).toBeGreaterThan(0.9);
  expect(made / ARRAYS / 8_032).toBeLessThan(1.1);
});

test('runs the other groups that need only one node', async () => {
  const groups = ['throughput', 'hand-over', 'held', 'overhead', 'growth', 'simulation'];
  const output = await bench(...groups, '--only', 'raw,ours', '--nodes', '1', '--effort', '0.02');
  for (const group of groups) expect(output).toContain(`== ${group}:`);
  const results = JSON.parse(await readFile(join(out, 'results.json'), 'utf8')) as {
    results: { held: { tables: { rows: Record<string, { commands: { median: number } }> }[] } };
  };
  // Renewed three times for each ttl, 100 locks at a time.
  const commands = results.results.held.tables[0]?.rows['ours']?.commands.median ?? NaN;
  expect(commands).toBeGreaterThan(0);
  expect(commands).toBeLessThan(0.2);
  await expect(readFile(join(out, 'growth-held.svg'), 'utf8')).resolves.toContain('<svg');
});

test('compares kinds of lock, and measures crowds and readers beside writers', async () => {
  const groups = ['kinds', 'timeouts', 'holders', 'readers'];
  const output = await bench(...groups, '--only', 'ours', '--nodes', '1', '--effort', '0.02');
  for (const group of groups) expect(output).toContain(`== ${group}:`);

  // One command to acquire and one to release, as in the other kinds.
  const kinds = await medians('kinds');
  expect(kinds('exclusive', 'commands')).toBe(2);
  expect(kinds('shared', 'commands')).toBe(2);
  expect(kinds('permits: 5', 'commands')).toBe(2);
  const timeouts = await medians('timeouts', 'Permits of ten seconds beside permits of a second, one node');
  expect(timeouts('ours', 'ofOne')).toBe(1);
  expect(timeouts('ours', 'ofTwo')).toBe(2);

  const holders = await medians('holders');
  expect(holders('10 of 1,000 permits', 'bytes')).toBeGreaterThan(0);

  const readers = await medians('readers');
  expect(readers('0 writers', 'read.together')).toBeGreaterThan(1);
  expect(readers('1 writer', 'write.perSecond')).toBeGreaterThan(0);
});

test('counts the round trips of permits on several nodes', async () => {
  await bench('permits', '--only', 'ours', '--nodes', '3', '--effort', '0.02');
  const permits = await medians('permits');
  expect(permits('3 permits, load 0.3', 'asked')).toBeGreaterThan(0);
  // Who is granted needs one round trip or one more.
  expect(permits('50 permits, load 0.3', 'first')).toBeGreaterThan(50);
});

test('compares stores by the cost of a lock, of a hand-over and of a held lock', async () => {
  const output = await bench('stores', '--only', 'ours', '--nodes', '1', '--effort', '0.02');
  expect(output).toContain('== stores:');
  const stores = await medians('stores');
  for (const name of ['ours in memory', 'ours in Redis', 'ours in PostgreSQL']) {
    for (const figure of ['acquire', 'release', 'perSecond', 'handOver', 'take', 'cpu'])
      expect([name, figure, stores(name, figure) > 0]).toEqual([name, figure, true]);
    expect(stores(name, 'kept')).toBe(100);
  }
});

test.each<[string, string[], RegExp]>([
  [
    'a group that is none',
    ['lateness'],
    /There is no group "lateness"; there are latency, network, throughput/,
  ],
  [
    'an option that is none',
    ['--bogus'],
    /Unknown option '--bogus'; npm run bench -- --help says what there is/,
  ],
  [
    'a contender that is none',
    ['--only', 'ours,theirs'],
    /There is no contender "theirs"; there are raw, ours/,
  ],
  [
    'nodes that are no number',
    ['--nodes', 'x'],
    /--nodes must be whole numbers, at least 1, .* 1,5; not "x"/,
  ],
  ['no node', ['--nodes', '1,0'], /--nodes must be whole numbers/],
  [
    'an effort that is no number',
    ['--effort', 'x'],
    /--effort must be a number above 0, such as 0\.1; not "x"/,
  ],
  ['no effort', ['--effort', '0'], /--effort must be a number above 0/],
])('%s: prints one line that says what to write, and ends with code 2', async (_what, args, message) => {
  const error: Error = await bench(...args).then(
    () => new Error('it ran'),
    (failure: Error) => failure,
  );
  const [ending = '', ...said] = error.message.split('\n').filter((line) => line !== '');
  expect(ending).toMatch(/failed \(2\)$/);
  expect(said).toEqual([expect.stringMatching(message)]);
});

test('--help lists the groups and the options', async () => {
  await expect(bench('--help')).resolves.toContain('--effort');
});
