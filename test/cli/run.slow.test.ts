import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLocks, type LockHandle, LockHeldError, type Locks } from '../../lib/standalone/index.js';
import { BoardStream } from '../board/board-stream.js';
import { CliProcess, runCli } from '../support/cli.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { PATIENT } from '../support/patience.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';

// Each test runs the built command on a real server, and a shell under the lock. `locks` are those of an application.

/** An address without a server. Neither tests nor other programs listen on this low port. */
const NO_SERVER = 'redis://127.0.0.1:1';

let redis: RedisServer;
let locks: Locks;
const held: LockHandle[] = [];

beforeAll(async () => {
  redis = await startRedis();
  locks = createLocks({ nodes: redis.url, owner: 'api:1', ...PATIENT, restartGuard: false });
});
afterEach(async () => {
  await Promise.all(held.splice(0).map((lock) => lock.release()));
});
afterAll(async () => {
  await locks.close();
  await redis.stop();
});

function start(args: readonly string[], env: NodeJS.ProcessEnv = {}): CliProcess {
  return new CliProcess(args, { REDLOCK_NODES: redis.url, ...env });
}

/** Runs a command under a lock whose ttl gives requests time on a busy machine. */
function run(key: string, options: readonly string[], ...words: readonly string[]): CliProcess {
  return start(['run', key, '--ttl', '60s', ...options, '--', ...words]);
}

/** A lock of the application, with a ttl that no slow machine outlasts. */
async function holdByApp(key: string, options: Parameters<Locks['acquire']>[1] = {}): Promise<LockHandle> {
  const lock = await locks.acquire(key, { ttl: 3_600_000, renew: false, ...options } as object);
  held.push(lock);
  return lock;
}

const isHeld = async (key: string): Promise<boolean> => (await locks.inspect(key)).held;

describe('nestjs-redlock run', () => {
  test('runs the command with the token under the lock, passes its exit code on, and releases', async () => {
    const before = await holdByApp('k');
    await before.release();
    const script = 'echo "token $REDLOCK_TOKEN slot ${REDLOCK_SLOT-none}"; exit 7';
    const args = ['run', 'k', '--ttl', '60s', '--', 'sh', '-c', script];
    const ended = await start(args, { REDLOCK_SLOT: '9' }).ended;
    expect(ended).toEqual({
      code: 7,
      stdout: expect.stringMatching(/^token \d{16} slot none\n$/),
      stderr: '',
    });
    expect(Number(/\d{16}/.exec(ended.stdout)?.[0])).toBeGreaterThan(before.fencingToken);
    await expect(isHeld('k')).resolves.toBe(false);
  });

  test('waits while others hold the lock; with --skip, or after --wait, ends with 75', async () => {
    const lock = await holdByApp('k');
    const waiting = run('k', [], 'echo', 'ran');
    const deaf = run('k', [], 'true');
    deaf.closeErrors();
    const [skipped, silent, late] = await Promise.all([
      run('k', ['--skip'], 'echo', 'ran').ended,
      run('k', ['--skip', '--quiet'], 'echo', 'ran').ended,
      run('k', ['--wait', '3s'], 'echo', 'ran').ended,
    ]);
    const holder = '"k" is held by api:1 \\(59 min \\d+ s left unless renewed\\)';
    expect(skipped).toEqual({
      code: 75,
      stdout: '',
      stderr: expect.stringMatching(`^nestjs-redlock: ${holder}\n$`),
    });
    expect(silent).toEqual({ code: 75, stdout: '', stderr: '' });
    expect(late).toMatchObject({ code: 75, stdout: '', stderr: expect.stringContaining('gave up') });
    await waiting.warns(`${holder}; waiting`);
    await lock.release();
    await expect(waiting.ended).resolves.toMatchObject({ code: 0, stdout: 'ran\n' });
    // A reader of the messages that has gone does no harm.
    await expect(deaf.ended).resolves.toMatchObject({ code: 0 });
  });

  test('takes one of --permits, whose number is in REDLOCK_SLOT, and a --shared lock beside others', async () => {
    await holdByApp('p', { permits: 2 });
    await holdByApp('s', { mode: 'shared' });
    const [permit, shared] = await Promise.all([
      run('p', ['--permits', '2', '--skip'], 'sh', '-c', 'echo "slot $REDLOCK_SLOT"').ended,
      run('s', ['--shared', '--skip'], 'true').ended,
    ]);
    expect(permit).toEqual({ code: 0, stdout: 'slot 1\n', stderr: '' });
    expect(shared).toMatchObject({ code: 0, stderr: '' });
  });

  test('passes signals to the command, and holds the lock until the command has ended', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'run-'));
    cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
    const script = `
      trap 'echo usr1' USR1
      trap 'echo int; while [ ! -e go ]; do sleep 0.2; done; exit 5' INT
      cd ${folder}; echo ready; while :; do sleep 0.2; done`;
    const running = run('k', [], 'sh', '-c', script);
    await running.says('ready');
    // Ctrl-Z of a terminal would stop the renewals.
    running.signal('SIGTSTP');
    running.signal('SIGUSR1');
    await running.says('usr1');
    running.signal('SIGINT');
    await running.says('int');
    await expect(isHeld('k')).resolves.toBe(true);
    await writeFile(join(folder, 'go'), '');
    await expect(running.ended).resolves.toMatchObject({ code: 5 });
    await expect(isHeld('k')).resolves.toBe(false);
  });

  test('ends by the signal that ended the command, and by the signal that ended the wait', async () => {
    const own = run('own', [], 'sh', '-c', 'kill -TERM $$');
    await own.ended;
    expect(own.endedBy).toBe('SIGTERM');
    await holdByApp('k');
    const waiting = run('k', [], 'echo', 'ran');
    await waiting.warns('waiting');
    waiting.signal('SIGINT');
    await expect(waiting.ended).resolves.toMatchObject({ stdout: '' });
    expect(waiting.endedBy).toBe('SIGINT');
  });

  test('ends all processes of the command when the lock is lost: with SIGTERM, then SIGKILL', async () => {
    const server = await startRedis();
    const script = `
      sh -c 'trap "" TERM; echo grandchild; while :; do sleep 0.2; done' &
      trap 'echo term; exit 0' TERM
      echo ready; while :; do sleep 0.2; done`;
    const args = ['run', 'k', '--ttl', '6s', '--kill-after', '300ms', '--', 'sh', '-c', script];
    const running = start(args, { REDLOCK_NODES: server.url });
    await running.says('ready');
    await running.says('grandchild');
    server.pause();
    // The outputs close when the last process that has them has ended.
    const { code, stdout, stderr } = await running.ended;
    server.resume();
    await server.stop();
    expect([code, stdout]).toEqual([74, expect.stringContaining('term')]);
    expect(stderr).toContain('The lock is lost: the command gets SIGTERM, and SIGKILL after 300 ms');
    expect(stderr).toContain('its validity ran out before a quorum renewed it (ttl 6000 ms)');
    expect(stderr).toContain('The lock was lost before the command ended (exit code 0)');
  });

  test('ends with 127 and 126 when the command cannot be started, and with 69 when no node answers', async () => {
    const [missing, syntax, unfit, away] = await Promise.all([
      run('a', [], 'no-such-command').ended,
      run('b', [], 'echo a').ended,
      run('c', [], '/etc/passwd').ended,
      runCli(['run', 'd', '--skip', '--node', NO_SERVER, '--', 'echo', 'ran']),
    ]);
    expect(missing).toMatchObject({
      code: 127,
      stderr: expect.stringContaining('Could not start "no-such-command": no such command; check its name'),
    });
    expect(syntax).toMatchObject({ code: 127, stderr: expect.stringContaining("sh -c '...'") });
    expect(unfit).toMatchObject({ code: 126, stderr: expect.stringContaining('EACCES') });
    expect(away).toMatchObject({ code: 69, stdout: '' });
    expect(away.stderr).toContain('Could not lock "d": the node gave no usable answer');
    expect(away.stderr).toContain('Try nestjs-redlock doctor\n');
    await expect(Promise.all(['a', 'b', 'c'].map(isHeld))).resolves.toEqual([false, false, false]);
  });
});

describe('nestjs-redlock hold', () => {
  test('keeps others out until Ctrl-C, and shows them the reason and the end', async () => {
    const hold = start(['hold', 'job', '--ttl', '60s', '--for', '2h', '--reason', 'migration 42']);
    await hold.says(/Holding "job" until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/);
    const shown = /\S+:\d+ until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: migration 42/;
    const refusal = (await locks.acquire('job', { retry: false }).catch((error: unknown) => error)) as Error;
    expect(refusal).toBeInstanceOf(LockHeldError);
    expect(refusal.message).toMatch(new RegExp(`^"job" is held by ${shown.source} \\(for \\d+ ms more`));
    const board = start(['board']);
    await board.says(/Board: .*:\d+\//);
    const stream = await BoardStream.open(/http:\S+(?=\/)/.exec(board.stdout)![0]);
    await stream.hears(({ type }) => type === 'snapshot');
    expect(stream.snapshot.rows).toMatchObject([
      { key: 'job', holders: [{ owner: expect.stringMatching(shown) }] },
    ]);
    stream.close();
    board.signal('SIGINT');
    const inspected = await start(['inspect', 'job']).ended;
    expect(inspected.stdout).toMatch(new RegExp(`owner    ${shown.source}\n`));
    hold.signal('SIGINT');
    await expect(hold.ended).resolves.toMatchObject({ code: 0, stderr: '' });
    await expect(isHeld('job')).resolves.toBe(false);
    await board.ended;
  });

  test('ends by itself after --for, and with 74 when somebody has released it', async () => {
    const brief = start(['hold', 'brief', '--for', '1ms', '--skip', '--ttl', '60s', '--reason', 'a moment']);
    const lost = start(['hold', 'lost', '--for', '1h', '--reason', 'a while', '--ttl', '6s']);
    await expect(brief.ended).resolves.toMatchObject({
      code: 0,
      stdout: expect.stringContaining('Released'),
    });
    await lost.says('Holding');
    await locks.forceRelease('lost');
    await expect(lost.ended).resolves.toMatchObject({
      code: 74,
      stderr: expect.stringContaining('The lock on "lost" is lost'),
    });
  });
});
