import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import type { RequestFor } from '../../lib/cli/command-line.js';
import { checkRelease, release } from '../../lib/cli/release.js';
import { openSession, type Session } from '../../lib/cli/session.js';
import type { Terminal } from '../../lib/cli/terminal.js';
import { watch } from '../../lib/cli/watch.js';
import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { CliProcess, type Ended, runCli, runCliHere } from '../support/cli.js';
import { countLocks, nodesTo, recordOf, redlockOver } from '../support/core.js';
import { freePort } from '../support/free-port.js';
import { PATIENT } from '../support/patience.js';
import { type RedisServer, startRedis, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';

// The tests run the command on three real servers, in this process: a process of its own takes ten times as long. One
// test of each way to end runs the built command.

/** The ttl is an hour, so that during the first minute of a lock the command prints "59 min" and seconds as its end. */
const once: AcquireTerms = { ttl: 3_600_000, retry: NO_RETRY, renew: false, signals: [] };

/** An address without a server. Neither tests nor other programs listen on this low port. */
const NO_SERVER = '127.0.0.1:1';

let servers: RedisServer[];
let nodes: RedisStore[];
let app: Redlock;
let env: { REDLOCK_NODES: string };

beforeAll(async () => {
  servers = await startRedisNodes(3);
  const urls = servers.map(({ url }) => url);
  env = { REDLOCK_NODES: urls.join(',') };
  nodes = nodesTo(urls);
  await Promise.all(nodes.map((node) => node.connect()));
  app = redlockOver(nodes, { owner: 'api:1', ...PATIENT });
});
afterAll(async () => {
  await app.close();
  await Promise.all(servers.map((server) => server.stop()));
});
afterEach(async () => {
  await Promise.all([...app.held].map((lock) => lock.release()));
  await Promise.all(servers.map((server) => server.client().flushall()));
});

const cli = (...args: string[]): Promise<Ended> => runCliHere(args, env);

/** Acquires locks on these keys, and waits until every node has each of them. */
async function hold(...keys: string[]): Promise<void> {
  for (const key of keys) {
    const lock = await app.acquire([key], once);
    const everywhere = async (): Promise<boolean> =>
      (await Promise.all(nodes.map((node) => node.read([key])))).every(
        ([state]) => state && 'holders' in state && state.holders[0]?.id === lock.id,
      );
    await until(everywhere);
  }
}

describe('nestjs-redlock leaders', () => {
  test('`leaders` prints the leaders as a table, or as JSON with --json', async () => {
    expect((await cli('leaders')).stdout).toBe('No leaders.\n');
    await hold('leader:consumer', 'order:1');
    const { code, stdout } = await cli('leaders');
    expect(code).toBe(0);
    const [heading = '', ...rows] = stdout.trimEnd().split('\n');
    expect(heading).toMatch(/^LEADER +OWNER +LEADS FOR +ENDS IN +TERM$/);
    expect(rows).toEqual([expect.stringMatching(/^consumer +api:1 +\d+(\.\d)? m?s +59 min \d+ s +\d{16}$/)]);
    expect(JSON.parse((await cli('leaders', '--json')).stdout)).toEqual([
      {
        leader: 'consumer',
        owner: 'api:1',
        since: expect.any(String),
        remaining: expect.any(Number),
        fencingToken: expect.any(Number),
      },
    ]);
  });
});

describe('nestjs-redlock list', () => {
  test('`list` prints the held locks as a table', async () => {
    await hold('order:2', 'order:1', 'report');
    const { code, stdout, stderr } = await runCli(['list'], env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const lines = stdout.trimEnd().split('\n');
    expect(lines[0]).toMatch(/^KEY +MODE +OWNER +HELD FOR +ENDS IN +TOKEN +NODES$/);
    expect(lines.slice(1).map((line) => line.split(/ {2,}/))).toEqual(
      ['order:1', 'order:2', 'report'].map((key) => [
        key,
        'exclusive',
        'api:1',
        expect.stringMatching(/^\d+(\.\d)? m?s$/),
        expect.stringMatching(/^59 min \d+ s$/),
        expect.stringMatching(/^\d{16}$/),
        '3 of 3',
      ]),
    );
  });

  test('`list --json` prints the locks as JSON, filtered by a prefix or limited by --limit', async () => {
    await hold('order:2', 'order:1', 'report');
    const { code, stdout } = await cli('list', 'order:', '--json');
    expect(code).toBe(0);
    const tokens = [...app.held].map((lock) => lock.fencingToken);
    expect(JSON.parse(stdout)).toEqual(
      ['order:1', 'order:2'].map((key) =>
        expect.objectContaining({ key, held: true, owner: 'api:1', fencingToken: expect.any(Number) }),
      ),
    );
    for (const { fencingToken } of JSON.parse(stdout)) expect(tokens).toContain(fencingToken);
    expect(JSON.parse((await cli('list', '--limit', '2', '--json')).stdout)).toHaveLength(2);
  });

  test('`list` prints "No locks.", or an empty array with --json, when nobody holds a lock', async () => {
    await expect(cli('list')).resolves.toEqual({ code: 0, stdout: 'No locks.\n', stderr: '' });
    await expect(cli('list', '--json')).resolves.toMatchObject({ code: 0, stdout: '[]\n' });
  });

  test('`list --key-prefix` prints the locks stored under the given key prefix', async () => {
    await servers[0]!.client().set('my:{k}', recordOf('somebody'));
    const { stdout } = await cli('list', '--json', '--node', servers[0]!.url, '--key-prefix', 'my:');
    expect(JSON.parse(stdout)).toMatchObject([{ key: 'k', owner: 'somebody', remaining: null }]);
  });

  test('`list` ends with code 0 when the reader of its output closes the pipe', async () => {
    await hold('k');
    const { REDLOCK_NODES } = env;
    const run = new CliProcess(['list'], { REDLOCK_NODES });
    run.closeOutput();
    await expect(run.ended).resolves.toMatchObject({ code: 0, stderr: '' });
  });

  test('`list` and `inspect` write no key to the nodes', async () => {
    await cli('list');
    await cli('inspect', 'k');
    for (const server of servers) await expect(server.client().keys('*')).resolves.toEqual([]);
  });
});

describe('nestjs-redlock inspect', () => {
  test('`inspect` prints the holder and the answer of each node', async () => {
    await hold('k');
    const [lock] = app.held;
    const { code, stdout } = await cli('inspect', 'k');
    expect(code).toBe(0);
    expect(stdout).toContain('"k" is held\n  mode     exclusive\n  owner    api:1\n');
    expect(stdout).toMatch(/since {4}20\d\d-\S+Z, \d.*s ago \(by the holder's clock\)\n/);
    expect(stdout).toContain(`token    ${lock!.fencingToken}\n  id       ${lock!.id}\n`);
    for (const { port } of servers) {
      expect(stdout).toMatch(new RegExp(`\n127.0.0.1:${port} +held +api:1 +${lock!.id} `));
    }
  });

  test('`inspect --json` prints the holder and the votes of the nodes as JSON', async () => {
    await hold('k');
    const [lock] = app.held;
    const { stdout } = await cli('inspect', 'k', '--json');
    expect(JSON.parse(stdout)).toMatchObject({
      key: 'k',
      held: true,
      id: lock!.id,
      owner: 'api:1',
      fencingToken: lock!.fencingToken,
      votes: [{ vote: 'held' }, { vote: 'held' }, { vote: 'held' }],
    });
  });

  test('`inspect` ends with code 1 for a key that is not held', async () => {
    const { code, stdout } = await runCli(['inspect', 'nope'], env);
    expect(code).toBe(1);
    expect(stdout).toContain('"nope" is not held\n');
  });

  test('`inspect` says that too few nodes store a key, and ends with code 1', async () => {
    await servers[0]!.client().set('lock:{k}', recordOf('somebody'));
    await expect(cli('inspect', 'k')).resolves.toMatchObject({
      code: 1,
      stdout: expect.stringContaining('"k" is not held: fewer than a quorum of nodes store it'),
    });
  });
});

describe('nestjs-redlock release', () => {
  test('`release --yes` releases a lock, and ends with code 1 if nobody holds the lock', async () => {
    await hold('k');
    await expect(runCli(['release', 'k', '--yes'], env)).resolves.toMatchObject({
      code: 0,
      stdout: expect.stringContaining('Released "k".'),
    });
    await expect(cli('release', 'k', '--yes')).resolves.toMatchObject({
      code: 1,
      stdout: '"k" is not held.\n',
    });
    for (const server of servers) await expect(countLocks(server.client())).resolves.toBe(0);
  });

  test('`release --json` prints as JSON whether a lock was released', async () => {
    await hold('k');
    const runs = [await cli('release', 'k', '-y', '--json'), await cli('release', 'k', '-y', '--json')];
    expect(runs.map(({ code, stdout }) => [code, JSON.parse(stdout)])).toEqual([
      [0, { key: 'k', released: true }],
      [1, { key: 'k', released: false }],
    ]);
  });

  test('`release --id` ends only the holder with that id, and releases nothing for an unknown id', async () => {
    await hold('k');
    const [lock] = app.held;
    await expect(cli('release', 'k', '--id', 'f00', '--yes')).resolves.toMatchObject({
      code: 1,
      stdout: '"k" has no holder with that id.\n',
    });
    await expect(countLocks(servers[0]!.client())).resolves.toBe(1);
    const { code, stdout } = await cli('release', 'k', '--id', lock!.id, '--yes', '--json');
    expect([code, JSON.parse(stdout)]).toEqual([0, { key: 'k', id: lock!.id, released: true }]);
  });

  test('`release --id` prints that the key was released for one of its holders', async () => {
    await hold('k');
    const [lock] = app.held;
    await expect(cli('release', 'k', '--id', lock!.id, '--yes')).resolves.toMatchObject({
      code: 0,
      stdout: 'Released "k" for one of its holders. That holder notices the loss at its next renewal.\n',
    });
  });

  test('`release` refuses to run without a terminal and without --yes, and deletes nothing', async () => {
    await hold('k');
    await expect(runCli(['release', 'k'], env)).resolves.toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('Write --yes to release without confirmation'),
    });
    await expect(countLocks(servers[0]!.client())).resolves.toBe(1);
  });
});

/** Simulates a terminal in this process. */
function terminal(): Terminal & { typed: PassThrough; text: () => string; ending: AbortController } {
  const typed = Object.assign(new PassThrough(), { isTTY: true });
  const output = Object.assign(new PassThrough(), { isTTY: true, rows: 24 });
  const ending = new AbortController();
  let text = '';
  output.on('data', (chunk: Buffer) => (text += chunk.toString()));
  return { input: typed, typed, output, errors: output, signal: ending.signal, ending, text: () => text };
}

describe('on a terminal', () => {
  const sessions: Session[] = [];
  afterEach(() => Promise.all(sessions.splice(0).map((session) => session.close())));

  async function opened(): Promise<Session> {
    const session = await openSession(request().target);
    sessions.push(session);
    return session;
  }

  const request = (): Pick<RequestFor<'release'>, 'target' | 'json'> => ({
    target: {
      nodes: servers.map(({ url }) => url),
      source: '--node',
      keyPrefix: 'lock:',
      insecure: false,
    },
    json: false,
  });

  test.each([
    ['y\n', 0],
    ['YES\n', 0],
    ['n\n', 1],
    ['\n', 1],
    ['yellow\n', 1],
  ])('on a terminal, `release` asks for confirmation, and follows the answer %j', async (answer, code) => {
    await hold('k');
    const session = await opened();
    const screen = terminal();
    const asked: RequestFor<'release'> = {
      ...request(),
      command: 'release',
      key: 'k',
      id: undefined,
      yes: false,
    };
    expect(() => checkRelease(asked, screen)).not.toThrow();
    const done = release(session, asked, screen);
    await until(() => screen.text().includes('[y/N]'));
    expect(screen.text()).toMatch(
      /"k" is held by api:1, for \d.* After the release its holder continues to work until it notices the loss at its next renewal\./,
    );
    screen.typed.write(answer);
    await expect(done).resolves.toBe(code);
    await expect(countLocks(servers[0]!.client())).resolves.toBe(code);
  });

  test('`release` deletes nothing if Ctrl-C or the end of the input comes instead of a confirmation', async () => {
    await hold('k');
    const session = await opened();
    for (const leave of [
      (screen: ReturnType<typeof terminal>) => screen.typed.end(),
      (screen: ReturnType<typeof terminal>) => screen.ending.abort(),
    ]) {
      const screen = terminal();
      const done = release(
        session,
        { ...request(), command: 'release', key: 'k', id: undefined, yes: false },
        screen,
      );
      await until(() => screen.text().includes('[y/N]'));
      leave(screen);
      await expect(done).resolves.toBe(1);
    }
    await expect(countLocks(servers[0]!.client())).resolves.toBe(1);
  });

  test('`watch` redraws a table that fits the height of the terminal', async () => {
    await hold(...Array.from({ length: 30 }, (_, index) => `k${index}`));
    const session = await opened();
    const screen = terminal();
    const done = watch(session, { ...request(), command: 'watch', prefix: 'k', interval: 100 }, screen);
    await until(() => screen.text().split('\u001B[H\u001B[J').length > 3);
    screen.ending.abort();
    await expect(done).resolves.toBe(0);
    const pictures = screen.text().split('\u001B[H\u001B[J');
    expect(pictures[1]).toContain('30 locks');
    expect(pictures[1]).toMatch(/\n\.\.\. and \d+ more\n$/);
    expect(pictures[1]!.split('\n').length).toBeLessThanOrEqual(25);
  });
});

describe('nestjs-redlock watch without a terminal', () => {
  test('without a terminal, `watch` prints a line for every change, and ends on Ctrl-C', async () => {
    await hold('before');
    const run = new CliProcess(['watch', '--interval', '100'], env);
    await run.says(/Z {2}held {6}before {2}api:1 {2}token \d+\n/);
    await hold('later');
    await run.says(/Z {2}acquired {2}later {2}api:1 {2}token \d+\n/);
    await Promise.all([...app.held].map((lock) => lock.release()));
    for (const key of ['before', 'later']) await run.says(`Z  released  ${key}  api:1`);
    run.signal('SIGINT');
    const { code, stdout, stderr } = await run.ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.split('\n').filter((line) => / (held|acquired|released) /.test(line))).toHaveLength(4);
  });

  test('`watch --json` prints a JSON document on each line', async () => {
    await hold('other', 'watched');
    const run = new CliProcess(['watch', 'w', '--json', '--interval', '100'], env);
    await run.says('"held"');
    run.signal('SIGTERM');
    const { code, stdout } = await run.ended;
    expect(code).toBe(0);
    const documents = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { change: string });
    expect(documents.filter(({ change }) => change !== 'unavailable')).toEqual([
      expect.objectContaining({
        time: expect.any(String),
        change: 'held',
        key: 'watched',
        owner: 'api:1',
        mode: 'exclusive',
      }),
    ]);
  });

  test('`watch` reports nodes that are down, and continues', async () => {
    const server = await startRedis();
    const run = new CliProcess(['watch', '--interval', '100', '--node', server.url]);
    await server.client().set('lock:{a}', recordOf('somebody'));
    await run.says('a {2}somebody');
    await server.kill();
    await run.says('unavailable {2}Could not list all locks');
    await server.restart();
    await server.client().set('lock:{b}', recordOf('somebody'));
    await run.says('b {2}somebody');
    run.signal('SIGINT');
    await expect(run.ended).resolves.toMatchObject({ code: 0 });
    await server.stop();
  });
});

describe('nestjs-redlock', () => {
  test('the CLI ends with code 2 and advice for a missing node, a missing or unknown command, or an invalid URL', async () => {
    const runs = await Promise.all([
      runCliHere(['list']),
      runCliHere([]),
      runCli(['frob'], env),
      runCliHere(['list', '--node', 'localhost:6379']),
    ]);
    expect(runs.map(({ code, stdout }) => ({ code, stdout }))).toEqual(
      Array.from({ length: 4 }, () => ({ code: 2, stdout: '' })),
    );
    expect(runs.map(({ stderr }) => stderr)).toEqual([
      expect.stringContaining('Write --node redis://localhost:6379'),
      expect.stringContaining('Write one of list, leaders, inspect, watch, release, doctor, board'),
      expect.stringContaining('Unknown command "frob"'),
      expect.stringContaining('Expected --node to be a Redis URL, such as redis://host:6379'),
    ]);
    for (const { stderr } of runs) expect(stderr).toContain('Try nestjs-redlock --help\n');
  });

  test('the CLI ends with code 3 and names the nodes when no node is reachable', async () => {
    const { code, stderr } = await runCli(['inspect', 'k', '--node', `redis://${NO_SERVER}`]);
    expect(code).toBe(3);
    expect(stderr).toContain(`${NO_SERVER}: not connected (connect ECONNREFUSED ${NO_SERVER})`);
    expect(stderr).toContain('Try nestjs-redlock doctor\n');
  });

  test('`list` prints the locks even if one of three nodes is down', async () => {
    await hold('k');
    const [, second, third] = servers;
    const args = ['--node', second!.url, '--node', third!.url, '--node', `redis://${NO_SERVER}`];
    await expect(runCliHere(['list', ...args])).resolves.toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/\nk .* 2 of 3\n$/),
    });
  });

  test('the CLI prints its commands with --help, and its version with --version', async () => {
    const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8'));
    await expect(runCli(['--version'])).resolves.toEqual({ code: 0, stdout: `${version}\n`, stderr: '' });
    const { code, stdout } = await runCli(['--help']);
    expect(code).toBe(0);
    for (const command of ['list', 'inspect', 'watch', 'release', 'doctor'])
      expect(stdout).toContain(`\n  ${command} `);
  });
});

describe('nestjs-redlock on a secured server', () => {
  const password = 's3cr3t/p@ss';
  const encoded = encodeURIComponent(password);
  const tls = (name: string): string => join(import.meta.dirname, 'tls', name);

  /**
   * Runs the command lines one after the other. If they ran at the same time on a busy machine, a node could take
   * longer than its limit of 2 s.
   */
  async function oneAfterAnother(lines: readonly (readonly string[])[]): Promise<Ended[]> {
    const runs: Ended[] = [];
    for (const line of lines) runs.push(await runCliHere(line));
    return runs;
  }

  test('the CLI obeys the rights of a Redis ACL user, and prints no password', async () => {
    const server = await startRedis();
    const looker = server.client();
    await looker.call(
      'ACL',
      'SETUSER',
      'ops',
      'on',
      `>${password}`,
      '~lock:*',
      '+@read',
      '+@scripting',
      '+time',
      '+info',
      '+ping',
    );
    await looker.set('lock:{k}', recordOf('somebody'));
    const at = `127.0.0.1:${server.port}`;
    const good = `redis://ops:${encoded}@${at}`;
    const wrong = `redis://ops:${encoded}wrong@${at}`;
    const runs = await oneAfterAnother([
      ['list', '--node', good],
      ['release', 'k', '--yes', '--node', good],
      ['doctor', '--node', good],
      ['list', '--node', wrong],
      ['doctor', '--json', '--node', wrong],
      ['list', '--node', `redis://ops:${encoded}@${NO_SERVER}`],
      ['list', '--node', `redis://ops:${encoded}@${at}/x`],
      [`redis://ops:${encoded}@${at}`],
    ]);
    expect(runs.map(({ code }) => code)).toEqual([0, 3, 1, 3, 3, 3, 2, 2]);
    expect(runs[0]?.stdout).toMatch(/\nk +exclusive +somebody /);
    // This user may inspect locks, and has no right to release them.
    expect(runs[1]?.stderr).toMatch(/can't run this command|ACL failure in script/);
    expect(runs[2]?.stdout).toContain('allow the command with ACL SETUSER');
    expect(runs[3]?.stderr).toContain('WRONGPASS');
    for (const { stdout, stderr } of runs) {
      for (const secret of [password, encoded, 's3cr3t']) expect(stdout + stderr).not.toContain(secret);
    }
    await server.stop();
  });

  test('for a TLS server that requires client certificates, the CLI needs --cert, --key, and --ca or --insecure', async () => {
    const port = await freePort();
    const server = await startRedis({
      args: [
        ...[
          '--tls-port',
          String(port),
          '--tls-cert-file',
          tls('redis.crt'),
          '--tls-key-file',
          tls('redis.key'),
        ],
        ...['--tls-ca-cert-file', tls('ca.crt'), '--tls-auth-clients', 'yes'],
      ],
    });
    const node = ['--node', `rediss://127.0.0.1:${port}`];
    const client = ['--cert', tls('redis.crt'), '--key', tls('redis.key')];
    const runs = await oneAfterAnother([
      ['list', ...node, ...client, '--ca', tls('ca.crt')],
      ['list', ...node, ...client, '--insecure'],
      ['doctor', ...node, ...client],
      ['list', ...node, '--ca', tls('ca.crt')],
    ]);
    expect(runs.map(({ code }) => code)).toEqual([0, 0, 3, 3]);
    expect(runs[2]?.stdout).toContain('give the certificate authority with --ca FILE');
    await server.stop();
  });
});
