import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, jest, test } from '@jest/globals';
import { runCommand } from '../consumers/run-command.js';
import { compile } from '../faults/compile.js';

// It takes a second; on a machine with more to do than it can, a good deal more.
jest.setTimeout(120_000);

let compiled: string;
let out: string;

beforeAll(async () => {
  compiled = await compile(['lib', 'test/support', 'bench']);
  out = await mkdtemp(join(tmpdir(), 'bench-'));
});

afterAll(() => Promise.all([compiled, out].map((folder) => rm(folder, { recursive: true, force: true }))));

/** Runs as `npm run bench -- ...` does; whether the figures are good is nothing that a busy machine can tell. */
function bench(...args: string[]): Promise<string> {
  const main = join(compiled, 'bench', 'main.js');
  return runCommand(process.execPath, ['--expose-gc', main, ...args, '--out', out], { cwd: process.cwd() });
}

test('measures a group and writes what it found', async () => {
  const output = await bench('latency', '--only', 'raw,ours', '--nodes', '1', '--effort', '0.05');
  expect(output).toContain('Latency of acquire and release, one node');
  const results = JSON.parse(await readFile(join(out, 'results.json'), 'utf8')) as {
    results: { latency: { tables: { rows: Record<string, { commands: { median: number } }> }[] } };
  };
  const [latency] = results.results.latency.tables;
  // One command to acquire, one to release.
  expect(latency?.rows['raw']?.commands.median).toBe(2);
  expect(latency?.rows['ours']?.commands.median).toBe(2);
});

test('says what there is when it is asked for something else', async () => {
  await expect(bench('lateness')).rejects.toThrow('There is no group "lateness"');
});
