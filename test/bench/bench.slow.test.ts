import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { bytesMade } from '../../bench/measure/allocations.js';
import { Bench } from './bench.js';

// These tests run one group of benchmarks, and check the output for --help and for an unknown group. The other groups
// are in groups.long.ts.

let bench: Bench;

beforeAll(async () => {
  bench = await Bench.compile();
});
afterAll(() => bench.remove());

test('the benchmark measures a group and writes the results', async () => {
  const output = await bench.run('latency', '--only', 'ours,raw', '--nodes', '1', '--effort', '0.05');
  expect(output).toContain('Latency of acquire and release, one node');
  expect(output).toContain('both p50, to raw');
  const latency = await bench.medians('latency');
  // One command acquires, and one releases.
  expect(latency('raw', 'commands')).toBe(2);
  expect(latency('ours', 'commands')).toBe(2);
});

test('`bytesMade` also counts garbage-collected objects, with an error below 10%', async () => {
  const ARRAYS = 20_000;
  let last: unknown;
  const made = await bytesMade(() => {
    // Each element takes 8 bytes, and the two objects of an array take 32.
    for (let index = 0; index < ARRAYS; index++) last = new Array(1_000).fill(index);
    return Promise.resolve(last);
  });
  expect(made / ARRAYS / 8_032).toBeGreaterThan(0.9);
  expect(made / ARRAYS / 8_032).toBeLessThan(1.1);
});

test('the benchmark prints one line and ends with code 2 for an unknown group', async () => {
  const error: Error = await bench.run('lateness').then(
    () => new Error('it ran'),
    (failure: Error) => failure,
  );
  const [ending = '', ...said] = error.message.split('\n').filter((line) => line !== '');
  expect(ending).toMatch(/failed \(2\)$/);
  expect(said).toEqual([expect.stringContaining('There is no group "lateness"')]);
});

test('the benchmark lists its options with --help', async () => {
  await expect(bench.run('--help')).resolves.toContain('--effort');
});
