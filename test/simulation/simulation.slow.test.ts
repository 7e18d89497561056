import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';

/** Runs the simulator in a process of its own, and returns the lines of its output, and its exit code. */
async function simulate(...args: string[]): Promise<{ readonly lines: string[]; readonly code: number }> {
  const run = promisify(execFile)('node', ['test/simulation/simulate.mjs', ...args]);
  const { stdout, code } = await run.then(
    (output) => ({ ...output, code: 0 }),
    // The exit code 1 says that a world broke a promise.
    (error: { stdout: string; code: number }) => {
      if (error.code !== 1 || error.stdout === '') throw error;
      return error;
    },
  );
  return { lines: stdout.trim().split('\n'), code };
}

test('a seed has the same history in each run, whatever ran before it', async () => {
  const hashes = async (...args: string[]): Promise<string[]> => {
    const { lines } = await simulate('--hashes', ...args);
    return lines.filter((line) => /^\d+ [\da-f]{64}$/.test(line));
  };
  const several = await hashes('--from', '2', '--seeds', '3');
  const last = await hashes('--from', '4', '--seeds', '1');
  expect(new Set(several.map((line) => line.split(' ')[1])).size).toBe(3);
  expect(several.slice(2)).toEqual(last);
});

test('the worlds of the first seeds keep every promise, and what new worlds break is told', async () => {
  const { lines, code } = await simulate('--seeds', '40', '--seconds', '600');
  expect(lines.filter((line) => line.startsWith('seed '))).toEqual([]);
  expect(lines.at(-1)).toMatch(/^40 seeds, /);
  expect(code).toBe(0);
  // A finding in a new world is a defect from before, as a rule, so it fails no run.
  const first = Math.floor(Date.now() / 1_000);
  const { lines: told } = await simulate('--from', String(first), '--seconds', '5');
  expect(told.at(-1)).toMatch(/^[1-9]\d* seeds, /);
  process.stdout.write(`Simulated worlds of new seeds: ${told.join('\n')}\n`);
});

test('the worlds of recorded defects keep the promises that were fixed', async () => {
  const { lines, code } = await simulate('--regressions');
  expect(lines.filter((line) => line.startsWith('fixed breaks'))).toEqual([]);
  expect(code).toBe(0);
});

// Compiles the library again for each error, which takes minutes on a busy machine.
const RECORDED_LIMIT_MS = 900_000;

test(
  'the judge notices each planted error that has a recorded seed',
  async () => {
    const { lines, code } = await simulate('--break', 'recorded');
    expect(lines.filter((line) => line.includes('NOT FOUND'))).toEqual([]);
    expect(code).toBe(0);
  },
  RECORDED_LIMIT_MS,
);
