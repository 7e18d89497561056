import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { adviceOn, adviceOnVersion, examineServer, identityFinding } from '../../lib/cli/server-check.js';
import { type Ended, runCli, runCliHere } from '../support/cli.js';
import { type RedisServer, startRedis, type StartRedisOptions } from '../support/redis-server.js';
import { startMasters } from '../support/redis-cluster.js';
import { startSentinel } from '../support/sentinel.js';
import { likeValkey, rewriteInfo } from '../support/valkey-info.js';
import { recordOf } from '../support/core.js';

/** A URL without a server. Neither tests nor other programs listen on this low port. */
const NO_SERVER = 'redis://127.0.0.1:1';

const started: RedisServer[] = [];
let good: RedisServer[];

async function newServer(...args: string[]): Promise<RedisServer> {
  const options: StartRedisOptions = { args };
  const server = await startRedis(options);
  started.push(server);
  return server;
}

beforeAll(async () => {
  good = await Promise.all([newServer(), newServer(), newServer()]);
});
afterAll(() => Promise.all(started.map((server) => server.stop())));

function doctor(nodes: readonly (RedisServer | string)[], ...args: string[]): Promise<Ended> {
  const urls = nodes.map((node) => (typeof node === 'string' ? node : node.url));
  return runCliHere(['doctor', ...urls.flatMap((url) => ['--node', url]), ...args]);
}

/** Returns the lines about one node. */
function said({ stdout }: Ended, of: string | number): string[] {
  return stdout.split('\n').filter((line) => line.includes(`${of}: `));
}

test('`doctor` prints a table and ends with code 0 for three good nodes', async () => {
  // The built command, in a process of its own.
  const { code, stdout, stderr } = await runCli(['doctor'], {
    REDLOCK_NODES: good.map(({ url }) => url).join(','),
  });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const lines = stdout.trimEnd().split('\n');
  expect(lines[0]).toMatch(/^NODE +SERVER +UP +ROUND TRIP +WORST +CLOCK +APPENDFSYNC +EVICTION$/);
  for (const [index, { port }] of good.entries()) {
    expect(lines[index + 1]).toMatch(
      new RegExp(
        `^127.0.0.1:${port} +(redis|valkey) \\d+\\.\\S+ +\\d.*s +[\\d.]+ ms +[\\d.]+ ms +[+-]\\d+ ms +none +noeviction$`,
      ),
    );
  }
  expect(lines.at(-1)).toBe('3 of 3 nodes answer, and 2 are needed; problems: 0, warnings: 0');
});

test('`doctor` prints its figures as JSON with --json', async () => {
  const { code, stdout } = await doctor(good, '--json');
  expect(code).toBe(0);
  const server = {
    server: expect.stringMatching(/^127\.0\.0\.1:\d+$/),
    version: expect.stringMatching(/^(redis|valkey) \d/),
    role: 'master',
    uptime: expect.any(Number),
    roundTrip: { median: expect.any(Number), worst: expect.any(Number) },
    clockAhead: expect.any(Number),
    appendfsync: 'none',
    eviction: 'noeviction',
  };
  const diagnosis = JSON.parse(stdout);
  expect(diagnosis).toMatchObject({ answering: 3, quorum: 2, problems: 0, warnings: 0, findings: [] });
  for (const node of diagnosis.nodes) expect(node).toMatchObject({ findings: [], servers: [server] });
});

test('`doctor` says that another run of a server wrote the data of a node (S28)', async () => {
  const server = await newServer();
  const zero = '0'.repeat(16);
  const ids = `master_replid:${'a'.repeat(40)} run_id:${'b'.repeat(40)}`;
  await server.client().set('lock:redlock-server', `${zero}:${zero}:-:${ids}`);
  const warnings = said(await doctor([server, ...good.slice(1)]), server.port);
  expect(warnings).toEqual([expect.stringContaining('another run of a server wrote its data')]);
});

test.each([
  ['says for how long the node has been known', 5_000, /it was a replica.*first seen 5 s ago/],
  ['says nothing about a node that has been known for long', 3_600_000, /^undefined$/],
])('the check of an identity %s', (_what, ago, text) => {
  const identity = { since: 1_700_000_000_000, cause: 'replication', runId: 'a' } as const;
  expect(String(identityFinding(identity, 'a', identity.since + ago))).toMatch(text);
});

test('`doctor` leaves no key on the nodes', async () => {
  await doctor(good);
  await expect(good[0]!.client().keys('*')).resolves.toEqual([]);
});

describe('doctor', () => {
  test('`doctor` reports a server listed twice, a replica, a server that evicts keys, and a node of a Cluster', async () => {
    const [replica, evicting, inCluster] = await Promise.all([
      newServer('--replicaof', '127.0.0.1', String(good[0]!.port)),
      newServer('--maxmemory-policy', 'volatile-lru'),
      newServer('--cluster-enabled', 'yes'),
    ]);
    const nodes = [good[0]!, `redis://localhost:${good[0]!.port}`, good[1]!, good[2]!];
    const run = await doctor([...nodes, replica, evicting, inCluster]);
    expect(run.code).toBe(1);
    expect(said(run, `localhost:${good[0]!.port}`)[0]).toContain('list each server once');
    expect(said(run, replica.port)).toEqual([expect.stringContaining('it is a replica, which loses locks')]);
    expect(said(run, evicting.port).join()).toContain('maxmemory-policy is volatile-lru');
    expect(said(run, inCluster.port)).toEqual([expect.stringContaining('it is a node of a Redis Cluster')]);
    for (const { port } of good) expect(said(run, `problem: 127.0.0.1:${port}`)).toEqual([]);
  });

  test('`doctor` warns about a node that can forget locks in a restart, and about an even number of nodes', async () => {
    const durable = await newServer('--appendonly', 'yes', '--appendfsync', 'always');
    const run = await doctor([good[0]!, durable]);
    expect(run.code).toBe(0);
    expect(said(run, good[0]!.port)).toEqual([
      expect.stringMatching(/^warning: .*set appendonly to yes and appendfsync to always/),
    ]);
    expect(said(run, durable.port)).toEqual([]);
    expect(run.stdout).toContain(
      'warning: 2 nodes tolerate no more failures than 1 would; use an odd number of nodes',
    );
  });

  test('`doctor` reports a database that does not exist', async () => {
    const run = await doctor([`${good[0]!.url}/99`]);
    expect(run.code).toBe(1);
    expect(said(run, `${good[0]!.port}/99`)[0]).toMatch(/^problem: .*it has no database of that number/);
  });

  test('`doctor` reports a server without free memory', async () => {
    const full = await newServer('--maxmemory', '1');
    const run = await doctor([full]);
    expect(run.code).toBe(1);
    expect(said(run, full.port).join()).toContain('nothing can be locked without free memory');
  });

  test('`doctor` reports a server that has fewer replicas than min-replicas-to-write', async () => {
    const lonely = await newServer('--min-replicas-to-write', '1');
    const run = await doctor([lonely]);
    expect(run.code).toBe(1);
    expect(said(run, lonely.port).join()).toMatch(/NOREPLICAS.*; nothing can be locked while .*min-replicas/);
  });

  test.each(['evalsha', 'eval', 'set', 'zrem'])(
    '`doctor` reports a user without the right to the command %s',
    async (command) => {
      const client = good[0]!.client();
      const all = ['~lock:*', '&lock:*', '+@all'];
      await client.call('ACL', 'SETUSER', 'few', 'reset', 'on', '>pw', ...all, `-${command}`);
      const url = good[0]!.url.replace('redis://', 'redis://few:pw@');
      const run = await doctor([url, good[1]!, good[2]!]);
      expect(run.code).toBe(1);
      expect(said(run, good[0]!.port)).toEqual([
        expect.stringMatching(
          /^problem: .*(NOPERM|can't run this command|ACL failure in script).*ACL SETUSER <user> ~lock:/,
        ),
      ]);
    },
  );

  test('`doctor` warns about a user without the rights to INFO and to Pub/Sub channels', async () => {
    const client = good[0]!.client();
    await client.call('ACL', 'SETUSER', 'app', 'on', '>pw', '~lock:*', '+@all', '-info', 'resetchannels');
    const run = await doctor([good[0]!.url.replace('redis://', 'redis://app:pw@'), good[1]!, good[2]!]);
    expect(run.code).toBe(0);
    expect(said(run, good[0]!.port)).toEqual([
      expect.stringMatching(
        /^warning: .*Pub\/Sub messages do not work \(NOPERM.*ACL SETUSER <user> \+publish .*&lock:\*$/,
      ),
      expect.stringMatching(/^warning: .*allow INFO with ACL SETUSER <user> \+info$/),
    ]);
  });

  test.each(['publish', 'subscribe'])(
    '`doctor` warns about a user who may not %s, and accepts a user with access only to the channels of locks',
    async (command) => {
      const client = good[0]!.client();
      const locks = ['~lock:*', '+@all', 'resetchannels', '&lock:*'];
      const user = ['ACL', 'SETUSER', 'mute', 'reset', 'on', '>pw'] as const;
      await client.call(...user, ...locks, `-${command}`);
      const url = good[0]!.url.replace('redis://', 'redis://mute:pw@');
      const denied = await doctor([url, good[1]!, good[2]!]);
      expect(said(denied, good[0]!.port)).toEqual([
        expect.stringMatching(/^warning: .*Pub\/Sub messages do not work \(NOPERM/),
      ]);
      // These are the channels that locks use.
      await client.call(...user, '~lock:*', '+@all', 'resetchannels', '&lock:wake:*');
      const allowed = await doctor([url, good[1]!, good[2]!]);
      expect(said(allowed, good[0]!.port)).toEqual([]);
    },
  );

  test('`doctor` reports a node that is down, and ends with code 3 without a quorum', async () => {
    const one = await doctor([good[0]!, good[1]!, NO_SERVER]);
    expect(one.code).toBe(1);
    expect(one.stdout).toMatch(/problem: .*ECONNREFUSED.*; check the port, and that Redis runs there\n/);
    expect(one.stdout).toContain('2 of 3 nodes answer, and 2 are needed; problems: 1');
    await expect(doctor([good[0]!, NO_SERVER])).resolves.toMatchObject({
      code: 3,
      stdout: expect.stringContaining('1 of 2 nodes answer, and 2 are needed; problems: 1'),
    });
  });

  test('`doctor` reports a server that hangs, within 30 seconds', async () => {
    const hanging = await newServer();
    hanging.pause();
    const start = performance.now();
    const nodes = [good[0]!, good[1]!, hanging].map(({ url }) => url);
    const run = await runCli(['doctor'], { REDLOCK_NODES: nodes.join(',') });
    // The command sends twenty requests to a node. Waiting two seconds for each reply would take 40 s.
    expect(performance.now() - start).toBeLessThan(30_000);
    hanging.resume();
    expect(run.code).toBe(1);
    expect(said(run, hanging.port).join()).toContain('no answer within 2000 ms');
  });
});

test('`doctor` examines a master behind a Sentinel, and `list` shows the locks of that master', async () => {
  const port = await startSentinel(good[0]!, 'main');
  const url = `redis+sentinel://127.0.0.1:${port}/main`;
  await good[0]!.client().set('lock:{k}', recordOf('somebody'));
  const run = await doctor([url]);
  expect(run.code).toBe(0);
  expect(run.stdout).toMatch(new RegExp(`\nsentinel:main via 127.0.0.1:${port} +(redis|valkey) `));
  const listed = await runCliHere(['list', '--node', url]);
  await good[0]!.client().del('lock:{k}');
  expect(listed).toMatchObject({ code: 0, stdout: expect.stringMatching(/\nk +exclusive +somebody /) });
});

test('`doctor` examines every master of a Cluster, and `list`, `release` and `inspect` work on a Cluster', async () => {
  const masters = await startMasters([], []);
  const [first, second] = masters.map((server) => server.client());
  const url = `redis+cluster://127.0.0.1:${masters[0]!.port}`;
  const run = await doctor([url]);
  expect(run.code).toBe(0);
  for (const { port } of masters)
    expect(run.stdout).toMatch(new RegExp(`\n127.0.0.1:${port} +(redis|valkey) `));
  // The advice does not name the restart guard, which does not work on a Cluster.
  expect(run.stdout).toMatch(/a restart can forget locks .* appendfsync to always\n/);
  for (const client of [first, second]) {
    await client!.call('ACL', 'SETUSER', 'mute', 'on', '>pw', '~*', '&*', '+@all', '-ssubscribe');
  }
  const mute = await doctor([url.replace('//', '//mute:pw@')]);
  expect(mute.stdout).toMatch(/warning: .*Pub\/Sub messages do not work \(NOPERM/);
  // The slots of these keys are on both masters.
  const keys = ['a', 'b', 'c', 'd', 'e', 'f'];
  const slots = await Promise.all(keys.map((key) => first!.call('CLUSTER', 'KEYSLOT', `lock:{${key}}`)));
  for (const [index, key] of keys.entries()) {
    await (Number(slots[index]) < 8_192 ? first : second)!.set(`lock:{${key}}`, recordOf('somebody'));
  }
  const listed = JSON.parse((await runCliHere(['list', '--json', '--node', url])).stdout) as {
    key: string;
  }[];
  expect(listed.map(({ key }) => key)).toEqual(keys);
  await expect(runCli(['release', 'c', '--yes', '--node', url])).resolves.toMatchObject({ code: 0 });
  await expect(runCliHere(['inspect', 'c', '--node', url])).resolves.toMatchObject({ code: 1 });
});

test('`doctor` accepts Valkey, and warns if INFO lacks the mode or the role', async () => {
  const findings = async (client: Redis): Promise<string[]> =>
    (await examineServer('a', client, false, true)).findings.map(({ level, text }) => `${level}: ${text}`);
  const [server] = good as [RedisServer];
  await expect(findings(likeValkey(server.client()))).resolves.toEqual([]);
  const silent = rewriteInfo(server.client(), (info) =>
    info.replace(/^(redis_mode|server_mode|cluster_enabled|role):.*/gm, ''),
  );
  await expect(findings(silent)).resolves.toEqual([
    expect.stringMatching(/^warning: INFO has no redis_mode/),
    expect.stringMatching(/^warning: INFO has no role/),
  ]);
});

test.each([
  ['connect ECONNREFUSED 127.0.0.1:1', 'check the port'],
  ['getaddrinfo ENOTFOUND redis', 'check the name of the host'],
  ['WRONGPASS invalid username-password pair', 'check the user and the password'],
  ['self-signed certificate', '--ca FILE'],
  ["NOPERM this user has no permissions to run the 'eval' command", '~my:* '],
  ["ERR The user executing the script can't run this command or subcommand script", '~my:* '],
  ["ERR ACL failure in script: User few has no permissions to run the 'zrem' command", '~my:* '],
  ['MISCONF Redis is configured to save RDB snapshots', 'see its log'],
])('`doctor` gives advice on the error %s', (message, advice) => {
  expect(adviceOn(new Error(message), 'my:')).toContain(advice);
  expect(adviceOn(new Error(message), 'my:')).toContain(message);
});

test.each(['2.8.24', '5.0.14', '6.0.20', '6.1.240'])(
  '`doctor` refuses the server version %s as too old',
  (version) => {
    expect(adviceOnVersion(version)).toContain(`the server has version ${version}; upgrade to 6.2 or later`);
  },
);

test.each(['6.2.0', '6.2', '7.0.15', '10.0.1', '', 'unknown'])(
  '`doctor` accepts the server version "%s"',
  (version) => {
    expect(adviceOnVersion(version)).toBeUndefined();
  },
);
