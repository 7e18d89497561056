import { describe, expect, test } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Cluster, Redis } from 'ioredis';
import { type Request, readCommandLine } from '../../lib/cli/command-line.js';
import type { Target } from '../../lib/cli/target.js';
import { lookingTerms } from '../../lib/cli/session.js';
import { openNodes } from '../../lib/cli/node-url.js';
import { factoryOf } from '../../lib/cli/targets.js';

const NODE = 'redis://localhost:6379';

function read(line: string, env: NodeJS.ProcessEnv = { REDLOCK_NODES: NODE }): Request {
  return readCommandLine(
    line.split(' ').filter((word) => word !== ''),
    env,
  );
}

function targetOf(line: string, env: NodeJS.ProcessEnv = {}): Target {
  const request = read(line, env);
  if (!('target' in request)) throw new Error('no target');
  return request.target;
}

describe('the command line', () => {
  test.each<[string, object]>([
    ['list', { command: 'list', prefix: '', limit: undefined, json: false }],
    ['list order: --limit 5 --json', { command: 'list', prefix: 'order:', limit: 5, json: true }],
    ['--json inspect k', { command: 'inspect', key: 'k', json: true }],
    ['inspect -- --k', { command: 'inspect', key: '--k' }],
    ['watch', { command: 'watch', prefix: '', interval: 1_000 }],
    ['watch order: --interval=250', { command: 'watch', prefix: 'order:', interval: 250 }],
    ['release k', { command: 'release', key: 'k', yes: false }],
    ['release k --id abc', { command: 'release', key: 'k', id: 'abc', yes: false }],
    ['release k -y', { command: 'release', key: 'k', yes: true }],
    ['doctor', { command: 'doctor' }],
    ['board', { command: 'board', port: 0, allowRelease: false }],
    ['board --port 8080 --allow-release', { command: 'board', port: 8080, allowRelease: true }],
    [
      'run k -- ls -l --json -- x',
      { command: 'run', key: 'k', words: ['ls', '-l', '--json', '--', 'x'], kind: {}, killAfter: 5_000 },
    ],
    ['run --skip k --ttl 30s -q -- run', { key: 'k', words: ['run'], wait: 0, ttl: 30_000, quiet: true }],
    ['run k --wait 1m30s --permits 3 -- a', { wait: 90_000, kind: { permits: 3 }, ttl: undefined }],
    ['run k --shared --kill-after 0s -- a', { kind: { mode: 'shared' }, killAfter: 0, wait: undefined }],
    ['run k --min-hold 0.5s -- a', { minHold: 500 }],
    [
      'hold k --for 2h --reason why',
      { command: 'hold', duration: 7_200_000, reason: 'why', wait: 7_200_000 },
    ],
    ['hold k --for 1d --reason why --wait 5min', { duration: 86_400_000, wait: 300_000 }],
    ['hold k --for 1h --reason why --skip', { wait: 0 }],
    ['--help', { command: 'help' }],
    ['list -h', { command: 'help' }],
    ['--version', { command: 'version' }],
  ])('the CLI parses the arguments "%s"', (line, request) => {
    expect(read(line)).toMatchObject(request);
  });

  test.each<[string, string]>([
    ['', 'No command. Write one of list, leaders, inspect, watch, release, doctor, board'],
    ['frob', 'Unknown command "frob". Write one of list, leaders, inspect, watch, release, doctor, board'],
    ['toString', 'Unknown command "toString"'],
    ['list a b', 'Too many arguments after list. Write nestjs-redlock list [PREFIX]'],
    ['inspect', 'No key. Write nestjs-redlock inspect KEY'],
    ['inspect }k', 'does not begin with "}"'],
    ['doctor k', 'Too many arguments after doctor. Write nestjs-redlock doctor'],
    ['list --yes', 'list does not take --yes'],
    ['board --json', 'board does not take --json'],
    ['board --port 65536', 'Expected --port to be at most 65535, got "65536"'],
    ['list --allow-release', 'list does not take --allow-release'],
    ['list --frob', "Unknown option '--frob'"],
    ['run k', 'No command to run. Write it after --, as in nestjs-redlock run k -- node report.js'],
    ['run k --', 'No command to run'],
    ['run -- ls', 'No key. Write nestjs-redlock run KEY'],
    ['run k ls', 'Too many arguments after run. Write nestjs-redlock run KEY -- COMMAND'],
    ['run k ls -l', "Unknown option '-l'. Write -- before the command of run"],
    ['run k --json -- ls', 'run does not take --json'],
    ['run k --for 2h -- ls', 'run does not take --for'],
    ['run k --wait 30 -- ls', 'Expected --wait to be a duration with its unit, such as 500ms, 30s'],
    ['run k --wait 0s -- ls', 'Expected --wait to be at least 1ms, got "0s"'],
    ['run k --ttl 999ms -- ls', 'Expected --ttl to be at least 1s, got "999ms"'],
    ['run k --ttl 25d -- ls', 'Expected --ttl to be at most 24d, got "25d"'],
    ['run k --skip --wait 1s -- ls', '--skip does not wait: leave out --skip or --wait'],
    ['run k --shared --permits 2 -- ls', '--shared and --permits are two kinds of lock'],
    ['run k --shared --min-hold 1s -- ls', '--min-hold needs an exclusive lock or --permits'],
    ['run k --permits 1001 -- ls', 'Expected --permits to be at most 1000, got "1001"'],
    [
      'hold k --reason why',
      'No end of the hold. Write nestjs-redlock hold k --for 2h --reason "migration 42"',
    ],
    ['hold k --for 1h', 'No reason, which all who ask for the lock are told'],
    [
      `hold k --for 1h --reason ${'a'.repeat(121)}`,
      'Expected --reason to have at most 120 characters, got 121',
    ],
    ['list --limit 0', 'Expected --limit to be a whole number, at least 1, got "0"'],
    ['list --limit 1e3', 'Expected --limit to be a whole number, at least 1, got "1e3"'],
    ['watch --interval 10', 'Expected --interval to be a whole number, at least 100, got "10"'],
    ['list --cert c.pem', '--cert and --key go together'],
    ['list --limit', "Option '--limit <value>' argument missing"],
  ])('the CLI refuses the arguments "%s" with the message: %s', (line, message) => {
    expect(() => read(line)).toThrow(message);
  });

  test('without --node and REDLOCK_NODES, the error says how to name a node', () => {
    expect(() => read('list', {})).toThrow(
      'Write --node redis://localhost:6379, repeated for each node, or set REDLOCK_NODES',
    );
  });

  test('the CLI takes the nodes from --node, or without --node from REDLOCK_NODES', () => {
    expect(targetOf('list --node redis://a -n redis://b', { REDLOCK_NODES: NODE }).nodes).toEqual([
      'redis://a',
      'redis://b',
    ]);
    expect(targetOf('list', { REDLOCK_NODES: ' redis://a, redis://b\nredis://c ' }).nodes).toEqual([
      'redis://a',
      'redis://b',
      'redis://c',
    ]);
  });

  test('a Cluster or Sentinel URL with several hosts in REDLOCK_NODES counts as one node', () => {
    const nodes = 'redis+cluster://a:1,b:2 redis+sentinel://c:3,d:4/main,redis://e:5';
    expect(targetOf('list', { REDLOCK_NODES: nodes }).nodes).toEqual([
      'redis+cluster://a:1,b:2',
      'redis+sentinel://c:3,d:4/main',
      'redis://e:5',
    ]);
  });
});

describe('openNodes', () => {
  function optionsOf(url: string): object {
    const [client] = openNodes({ nodes: [url], source: '--node', keyPrefix: 'lock:', insecure: false });
    return (client as Redis).options;
  }

  test.each<[string, object]>([
    ['redis://h', { host: 'h', port: 6379, db: 0 }],
    ['redis://h:1/3', { host: 'h', port: 1, db: 3 }],
    ['redis://[::1]:7', { host: '::1', port: 7 }],
    ['redis://:pw@h', { password: 'pw', host: 'h' }],
    ['redis://user:p%40s%2Fs%25@h', { username: 'user', password: 'p@s/s%', host: 'h' }],
    ['redis://user:p@ss@h', { username: 'user', password: 'p@ss', host: 'h' }],
    ['redis://user:p/s?s#s@h/1', { password: 'p/s?s#s', host: 'h', db: 1 }],
    ['rediss://h', { host: 'h', tls: {} }],
    ['unix:///run/redis.sock', { path: '/run/redis.sock' }],
    ['/run/redis.sock', { path: '/run/redis.sock' }],
    [
      'redis+sentinel://u:p@a,b:7/main/2?sentinelPassword=s%20p',
      {
        sentinels: [
          { host: 'a', port: 26379 },
          { host: 'b', port: 7 },
        ],
        name: 'main',
        db: 2,
        username: 'u',
        password: 'p',
        sentinelPassword: 's p',
      },
    ],
    ['rediss+sentinel://a/main', { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true }],
  ])('`openNodes` reads the URL %s', (url, options) => {
    // The client must not queue a command and run it later (S15).
    expect(optionsOf(url)).toMatchObject({ ...options, enableOfflineQueue: false, lazyConnect: true });
  });

  test('`openNodes` opens a Cluster client for rediss+cluster://', () => {
    const [client] = openNodes({
      nodes: ['rediss+cluster://u:p@a:1,b'],
      source: '--node',
      keyPrefix: 'lock:',
      insecure: true,
    });
    expect(client?.isCluster).toBe(true);
    expect((client as Cluster).options).toMatchObject({
      enableOfflineQueue: false,
      redisOptions: { username: 'u', password: 'p', tls: { rejectUnauthorized: false } },
    });
  });

  test.each<[string, string]>([
    ['localhost:6379', 'Expected --node to be a Redis URL, such as redis://host:6379'],
    ['http://h', 'Expected --node to be a Redis URL'],
    ['redis://', 'Expected --node to be a Redis URL'],
    ['redis://h:99999', 'Expected --node to have hosts such as localhost:6379'],
    ['redis://h/x', 'Expected --node to end in the number of a database'],
    ['redis://a,redis://b', 'Expected --node to have one host. Write one URL for each independent node'],
    ['redis://a:1,redis://b:2', 'one URL for each independent node'],
    ['redis+sentinel://a/m,redis+sentinel://b/m', 'one URL for each independent node'],
    ['redis://a,b', 'one URL for each independent node'],
    ['redis://h?db=3', 'Expected --node to have no parameters'],
    ['redis+sentinel://h', 'Expected --node to name the master'],
    ['redis+sentinel://h/m?x=1', 'no parameters other than sentinelUsername and sentinelPassword'],
    ['redis+cluster://h/1', 'a Cluster has no databases'],
    ['redis://u:50%@h', 'write "%" as %25'],
  ])('`openNodes` refuses the URL %s', (url, message) => {
    expect(() => optionsOf(url)).toThrow(message);
  });

  test.each([
    'redis://:secret',
    'redis://user:secret',
    'redis://user:sec/secret',
    'redis://user:secret%@h',
    'redis:secret@h',
    'http://user:secret@h',
    'redis://user:secret@h:port',
    'redis://user:secret@a,b',
    'redis://user:secret@a,redis://user:secret@b',
    'redis://user:secret@h/x',
    'redis://user:secret@h?secret=1',
    'redis+sentinel://:secret@h',
    'redis+cluster://:secret@h/secret',
  ])('`openNodes` refuses the URL %s without showing the password', (url) => {
    let message = '';
    try {
      optionsOf(url);
    } catch (error) {
      message = String(error);
    }
    expect(message).toContain('Expected --node to ');
    expect(message).not.toContain('secret');
  });

  test('the error for an invalid URL among several names its position', () => {
    const target: Target = {
      nodes: [NODE, 'x'],
      source: 'REDLOCK_NODES',
      keyPrefix: 'lock:',
      insecure: false,
    };
    expect(() => openNodes(target)).toThrow('Expected REDLOCK_NODES (URL number 2) to be a Redis URL');
  });

  test('the error for a certificate file that cannot be read names the file', () => {
    expect(() => openNodes(targetOf(`list --node ${NODE} --ca /no/such/file`))).toThrow(
      "Expected --ca to be a file that can be read: ENOENT: no such file or directory, open '/no/such/file'",
    );
  });

  test('the error for the text of a key in place of its file does not show the key', () => {
    const target = { ...targetOf(`list --node ${NODE}`), key: '-----BEGIN PRIVATE KEY-----\nsecret' };
    expect(() => openNodes(target)).toThrow(
      'Expected --key to be a file that can be read: got the content of a file',
    );
  });
});

test.each(['https://127.0.0.1:1', 'mysql://127.0.0.1/app', 'zookeepers://127.0.0.1:1/app'])(
  'the refusal of a --ca that cannot be read names the file for %s',
  async (url) => {
    const target = targetOf(`list --node ${url} --ca nowhere.pem`);
    const factory = await factoryOf(target);
    expect(() => factory?.openStore(lookingTerms(target))).toThrow(
      'Expected --ca to be a file that can be read',
    );
  },
);

test('the commands that the pages print for `run` and `hold` are valid', () => {
  const folder = join(import.meta.dirname, '../../docs');
  const lines = ['run.md', 'recipes.md', 'cli.md'].flatMap((page) =>
    readFileSync(join(folder, page), 'utf8').split('\n'),
  );
  const printed = lines.flatMap(
    (line) => /nestjs-redlock ((?:run|hold) .*?)(?: *(?:#|\|\||\\$|\]$).*)?$/.exec(line)?.[1] ?? [],
  );
  const commands = printed.filter((line) => / -- \w| --for /.test(line) && !line.includes('`'));
  expect(commands.length).toBeGreaterThan(3);
  for (const command of commands) {
    const words = [...command.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map(([, a, b, c]) => a ?? b ?? c ?? '');
    expect(readCommandLine(words, { REDLOCK_NODES: NODE })).toHaveProperty('key');
  }
});
