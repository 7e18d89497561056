import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { type Ended, runCli, runCliHere } from '../support/cli.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';

// Node.js loads files of an application that has the built package installed, so their tests run the built command in a
// process of its own.

const once: AcquireTerms = { ttl: 3_600_000, retry: NO_RETRY, renew: false, signals: [] };

const DEFINITIONS = `{
  'order:settle': { key: (id) => \`order:\${id}\`, ttl: 30_000, team: 'payments', about: 'one settlement at a time', onBusy: 'skip' },
  'tenant:report': { key: (tenant) => \`report:\${tenant}\`, permits: 5 },
  'catalog:read': { key: (id) => \`catalog:\${id}\`, mode: 'shared' },
  'catalog:write': { key: (id) => \`catalog:\${id}\` },
  'shard': { key: (id) => \`shard:\${id % 16}\` },
  'clean-up': { key: 'clean-up', team: 'ops' },
}`;

let redis: RedisServer;
let app: Redlock;
let folder: string;

beforeAll(async () => {
  redis = await startRedis();
  const nodes = nodesTo([redis.url]);
  await nodes[0]!.connect();
  app = redlockOver(nodes, { owner: 'api:1' });
  folder = await mkdtemp(join(tmpdir(), 'declared-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  await mkdir(join(folder, 'node_modules'));
  await symlink(resolve('.'), join(folder, 'node_modules/nestjs-redlock'));
  const files = {
    'locks.mjs': `import { defineLocks } from 'nestjs-redlock';\nexport const locks = defineLocks(${DEFINITIONS});\n`,
    'locks.cjs': `const { defineLocks } = require('nestjs-redlock');\nexports.locks = defineLocks(${DEFINITIONS});\n`,
    'default.cjs': `const { defineLocks } = require('nestjs-redlock');\nmodule.exports = defineLocks(${DEFINITIONS});\n`,
    'empty.mjs': 'export const locks = {};\n',
    'broken.mjs': "throw new Error('no database');\n",
    'twice.mjs':
      "import { defineLocks } from 'nestjs-redlock';\nexport const a = defineLocks({ x: { key: 'a' } });\nexport const b = defineLocks({ x: { key: 'b' } });\n",
    'locks.tsx': 'export const locks: object = {};\n',
  };
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  for (const key of ['order:1', 'order:2', 'catalog:9', 'unknown', 'leader:consumer'])
    await app.acquire([key], once);
  await app.acquire(['report:acme'], { ...once, kind: { mode: 'permits', permits: 5 } });
});
afterAll(async () => {
  await app.close();
  await redis.stop();
});

const cli = (...args: string[]): Promise<Ended> => runCli(args, { REDLOCK_NODES: redis.url });
const file = (name: string): string => join(folder, name);

test.each(['locks.mjs', 'locks.cjs', 'default.cjs'])(
  '`list --declared` shows the policy and the state of each lock that the file %s declares',
  async (name) => {
    const { code, stdout, stderr } = await cli('list', '--declared', '--locks', file(name));
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const lines = stdout
      .split('\n')
      .map((line) => line.replaceAll(/[\d.]+ (ms|s|min \d+ s)\b/g, 'T').trimEnd());
    expect(lines.slice(0, 7)).toEqual([
      'LOCK           KEYS             MODE       TTL      HELD  LONGEST  TEAM',
      expect.stringMatching(/^catalog:read {3}catalog:\* +shared +default +0$/),
      expect.stringMatching(/^catalog:write {2}catalog:\* +exclusive +default +1 +T$/),
      expect.stringMatching(/^clean-up +clean-up +exclusive +default +0 +ops$/),
      expect.stringMatching(/^order:settle +order:\* +exclusive +T +2 +T +payments$/),
      expect.stringMatching(/^shard +from a function +exclusive +default +\?$/),
      expect.stringMatching(/^tenant:report +report:\* +5 permits +default +1 +T$/),
    ]);
    expect(stdout).toMatch(/match no declared lock[^\n]*\nKEY[^\n]*\nunknown /);
    expect(stdout).not.toContain('leader:consumer');
  },
);

test('`describe` shows the policy and the held keys of a declared lock', async () => {
  const { code, stdout } = await cli('describe', 'order:settle', '--locks', file('locks.mjs'));
  expect(code).toBe(0);
  expect(stdout.split('\n').slice(0, 8)).toEqual([
    '"order:settle": one settlement at a time',
    '  team         payments',
    '  keys         order:*',
    '  mode         exclusive',
    '  ttl          30.0 s',
    '  onBusy       skip',
    '',
    expect.stringMatching(/^KEY +MODE +OWNER/),
  ]);
  expect(stdout).toMatch(/\norder:1 +exclusive +api:1 [^\n]*\norder:2 /);
});

test('`describe` says that nobody holds a lock, or that the pattern of its keys is not known', async () => {
  await expect(cli('describe', 'clean-up', '--locks', file('locks.mjs'))).resolves.toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/\nNobody holds it\.\n$/),
  });
  const shard = await cli('describe', 'shard', '--locks', file('locks.mjs'));
  expect(shard.stdout).toContain('The pattern of its keys is not known');
});

test('`list --declared` and `describe` print JSON with --json', async () => {
  const listed = await cli('list', '--declared', '--json', '--locks', file('locks.mjs'));
  const all = JSON.parse(listed.stdout) as { name: string | null }[];
  expect(all.map(({ name }) => name)).toContain('tenant:report');
  expect(all.at(-1)).toEqual({ name: null, held: [expect.objectContaining({ key: 'unknown' })] });
  const described = await cli('describe', 'order:settle', '--json', '--locks', file('locks.mjs'));
  expect(JSON.parse(described.stdout)).toEqual({
    name: 'order:settle',
    team: 'payments',
    about: 'one settlement at a time',
    keys: ['order:*'],
    policy: { ttl: 30_000, onBusy: 'skip' },
    held: [
      expect.objectContaining({ key: 'order:1', owner: 'api:1' }),
      expect.objectContaining({ key: 'order:2' }),
    ],
  });
  expect(all.find(({ name }) => name === 'order:settle')).toMatchObject({ policy: { ttl: 30_000 } });
});

test.each([
  [['list', '--declared'], 'No file with declared locks. Write nestjs-redlock list --declared --locks FILE'],
  [['list', '--locks', 'x'], '--locks works only with list --declared'],
  [['list', 'order:', '--declared', '--locks', 'x'], 'leave out PREFIX and --limit'],
  [['describe', '--locks', 'x'], 'No name. Write nestjs-redlock describe NAME --locks FILE'],
  [['describe', 'x'], 'No file with declared locks. Write nestjs-redlock describe x --locks FILE'],
  [['describe', 'x', '--locks', 'missing.js'], 'There is no file '],
])('for the arguments %j, which name no file, the CLI ends with code 2 and advice', async (args, message) => {
  const ended = await runCliHere(args, { REDLOCK_NODES: redis.url });
  expect(ended.stderr).toContain(message);
  expect(ended.code).toBe(2);
});

test.each([
  [['describe', 'x', '--locks', 'empty.mjs'], 2, 'does not export a result of defineLocks'],
  [['describe', 'x', '--locks', 'twice.mjs'], 2, 'exports two locks with the name "x"'],
  [['describe', 'x', '--locks', 'locks.tsx'], 2, 'Give the compiled file, such as dist/locks.js'],
  [['describe', 'x', '--locks', 'broken.mjs'], 4, 'could not be loaded: no database'],
  [
    ['describe', 'order:setle', '--locks', 'locks.mjs'],
    2,
    'declares no lock "order:setle". Did you mean "order:settle"?',
  ],
])('for the arguments %j the CLI ends with code %i and advice', async (args, code, message) => {
  const files = args.map((arg) => (/\.\w+$/.test(arg) ? file(arg) : arg));
  const ended = await cli(...files);
  expect(ended.stderr).toContain(message);
  expect(ended.code).toBe(code);
});
