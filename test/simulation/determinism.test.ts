import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';

/** Runs the simulator, and returns the lines of its output. */
async function simulate(...args: string[]): Promise<string[]> {
  const run = promisify(execFile)('node', ['test/simulation/simulate.mjs', ...args]);
  const { stdout } = await run.catch((error: { stdout: string; stderr: string; code: number }) => {
    // The exit code 1 says that a world broke a promise.
    if (error.code !== 1) throw error;
    return error;
  });
  return stdout.trim().split('\n');
}

function hashesIn(lines: readonly string[]): string[] {
  return lines.filter((line) => /^\d+ [\da-f]{64} /.test(line));
}

test('a seed has the same history in each run, whatever ran before it', async () => {
  const several = hashesIn(await simulate('--hashes', '--from', '1', '--seeds', '4'));
  const last = hashesIn(await simulate('--hashes', '--from', '4', '--seeds', '1'));
  expect(several).toHaveLength(4);
  expect(new Set(several.map((line) => line.split(' ')[1])).size).toBe(4);
  expect(several.slice(3)).toEqual(last);
});
