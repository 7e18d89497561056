import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { bytesMade } from '../../bench/measure/allocations.js';
import { Bench } from './bench.js';

// One group, and what the program says of its arguments. The other groups are in groups.long.ts.

let bench: Bench;

beforeAll(async () => {
  bench = await Bench.compile();
});
afterAll(() => bench.remove());

test('measures a group and writes what it found', async () => {
  const output = await bench.run('latency', '--only', 'ours,raw', '--nodes', '1', '--effort', '0.05');
  expect(output).toContain('Latency of acquire and release, one node');
  expect(output).toContain('both p50, to raw');
  const latency = await bench.medians('latency');
  // One command to acquire, one to release.
  expect(latency('raw', 'commands')).toBe(2);
  expect(latency('ours', 'commands')).toBe(2);
});

test('counts the bytes of objects that are collected meanwhile, right to a tenth', async () => {
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

test('wrong arguments end it with one line, and code 2', async () => {
  const error: Error = await bench.run('lateness').then(
    () => new Error('it ran'),
    (failure: Error) => failure,
  );
  const [ending = '', ...said] = error.message.split('\n').filter((line) => line !== '');
  expect(ending).toMatch(/failed \(2\)$/);
  expect(said).toEqual([expect.stringContaining('There is no group "lateness"')]);
});

test('--help lists the options', async () => {
  await expect(bench.run('--help')).resolves.toContain('--effort');
});
