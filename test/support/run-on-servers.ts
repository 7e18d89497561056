import { runCommand } from '../consumers/run-command.js';

/** Runs tests of Redis on other servers, and returns the line about each server. */
export async function runOnServers(...args: string[]): Promise<string[]> {
  const output = await runCommand(process.execPath, ['test/support/test-servers.mjs', ...args], { cwd: '.' });
  return output.split('\n').filter((line) => /^== \S+: /.test(line));
}
