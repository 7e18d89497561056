import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { parseArgs } from 'node:util';
import { debianServer, SERVER_NAMES, versionIn } from './debian-servers.mjs';

// `npm run test:servers [-- [--quick | --contract] [NAME...]]` runs the tests of Redis on each server, or on the named servers.

const ALL = [
  'contract/redis',
  'contract/permits',
  'stores/redis',
  'waiting',
  'variants',
  'faults',
  'cli/doctor',
];
/** Test files of a quick run, without the tests of the restart guard, which wait until the guard has passed. */
const QUICK = [
  'contract/redis-store-contract',
  'stores/redis/redis-store',
  'stores/redis/health/server-probe',
  'cli/doctor',
];

/** The contracts of the store and of locks. */
const CONTRACT = ['contract/redis-store-contract', 'contract/redis.test'];

const { values, positionals } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    contract: { type: 'boolean', default: false },
  },
  allowPositionals: true,
});
const names = positionals.length > 0 ? positionals : SERVER_NAMES;
const unknown = names.filter((name) => !SERVER_NAMES.includes(name));
if (unknown.length > 0) {
  console.log(`there is no server "${unknown.join('", "')}"; there are: ${SERVER_NAMES.join(', ')}`);
  process.exit(1);
}
const chosen = values.contract ? CONTRACT : values.quick ? QUICK : ALL;
const paths = chosen.map((path) => `test/${path}`);
// These runs take place beside other tests: see test/valkey.slow.test.ts.
const which = values.quick || values.contract ? ['-t', '^(?!the restart guard)', '--maxWorkers', '2'] : [];
const folder = mkdtempSync(join(tmpdir(), 'test-servers-'));
const summary = [];
for (const name of names) {
  summary.push(`${name}: ${runOn(name)}`);
}
rmSync(folder, { recursive: true, force: true });
console.log(summary.map((line) => `== ${line}`).join('\n'));

/** Runs the tests on a server. Returns the outcome as text; a failure sets the exit code of this process. */
function runOn(name) {
  let bin;
  let version;
  try {
    bin = debianServer(name);
    version = versionIn(bin);
  } catch (error) {
    const said = error.stderr?.toString().trim() || error.message;
    return `skipped, because the download failed: ${said.split('\n')[0]}`;
  }
  console.log(`== ${name} is ${version}`);
  const outputFile = join(folder, `${name}.json`);
  const { status } = spawnSync(
    'npm',
    ['run', '-s', 'test:jest', '--', '--json', '--outputFile', outputFile, ...which, ...paths],
    {
      env: { ...process.env, PATH: `${bin}${delimiter}${process.env['PATH']}` },
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
  if (status !== 0) process.exitCode = 1;
  const { numPassedTests, numFailedTests, numRuntimeErrorTestSuites } = JSON.parse(
    readFileSync(outputFile, 'utf8'),
  );
  return `${version}: ${numPassedTests} passed, ${numFailedTests + numRuntimeErrorTestSuites} failed`;
}
