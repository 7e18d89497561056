import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Buffer } from 'node:buffer';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  ANY_VERSION,
  check,
  create,
  exists,
  getChildren,
  getData,
  multi,
  remove,
  setData,
} from '../../../lib/stores/zookeeper/client/requests.js';
import { ZooKeeperClient } from '../../../lib/stores/zookeeper/client/zookeeper-client.js';
import { isRefusal, Refusal } from '../../../lib/stores/zookeeper/client/zookeeper-error.js';
import type { ZooKeeperOptions } from '../../../lib/stores/zookeeper/zookeeper.options.js';
import { zookeeper } from '../../../lib/zookeeper/index.js';
import { selfSigned } from '../../support/certificate.js';
import { freePort, LOOPBACK } from '../../support/free-port.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { newTerms } from '../../support/postgres-store.js';
import { startTcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { hasZooKeeper, startZooKeeper, type ZooKeeperServer } from '../../support/zookeeper-server.js';

/** A time limit that even a busy machine keeps. */
const LIMIT = 60_000;

const NOTHING = Buffer.alloc(0);
const world = { access: 'world' } as const;

const freshPath = (): string => `/${randomUUID()}`;

/** A client, and what it has told. */
class TestClient extends ZooKeeperClient {
  readonly told: { ready: number; lost: number; watched: string[] };

  constructor(options: ZooKeeperOptions) {
    const told: TestClient['told'] = { ready: 0, lost: 0, watched: [] };
    super(options, {
      ready: () => told.ready++,
      lost: () => told.lost++,
      watch: (path) => told.watched.push(path),
    });
    this.told = told;
    cleanUpAfterTests(() => this.close(1_000));
  }
}

/** Opens a client. On a busy machine, a server may give no session in time: another client then asks. */
async function opened(options: ZooKeeperOptions): Promise<TestClient> {
  for (;;) {
    const client = new TestClient(options);
    try {
      await client.open();
      return client;
    } catch (error) {
      if (!String(error).includes('no session within')) throw error;
      await client.close(1_000);
    }
  }
}

/** Starts a server that asks each client for a login by DIGEST-MD5. */
async function startSaslServer(
  user: { username: string; password: string },
  others: Readonly<Record<string, string>>,
): Promise<ZooKeeperServer> {
  const folder = await mkdtemp(join(tmpdir(), 'zookeeper-login-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  const login = join(folder, 'jaas.conf');
  const users = Object.entries({ [user.username]: user.password, ...others });
  const lines = users.map(([name, password]) => `user_${name}="${password}"`);
  await writeFile(
    login,
    `Server { org.apache.zookeeper.server.auth.DigestLoginModule required ${lines.join(' ')}; };`,
  );
  return startZooKeeper({
    properties: {
      'java.security.auth.login.config': login,
      'zookeeper.authProvider.1': 'org.apache.zookeeper.server.auth.SASLAuthenticationProvider',
      'zookeeper.sessionRequireClientSASLAuth': 'true',
    },
  });
}

const codeOf = (answer: Promise<unknown>): Promise<unknown> =>
  answer.then(
    () => 'no error',
    (error: unknown) => (error as { code?: number }).code,
  );

(hasZooKeeper() ? describe : describe.skip)('a client of ZooKeeper', () => {
  let server: ZooKeeperServer;
  const certificate = selfSigned();

  beforeAll(async () => {
    server = await startZooKeeper({ certificate: `${certificate.key}\n${certificate.cert}` });
  }, 180_000);
  afterAll(() => server.stop());

  test('creates, reads, changes, lists and removes nodes', async () => {
    const client = await opened({ connectionString: server.address });
    const path = freshPath();
    const before = Date.now();
    await client.ask(create(path, Buffer.from('one'), world), LIMIT);
    await client.ask(create(`${path}/ä`, NOTHING, world), LIMIT);
    const first = await client.ask(getData(path), LIMIT);
    expect([first.data.toString(), first.stat.version]).toEqual(['one', 0]);
    expect(Math.abs(first.stat.mtime - before)).toBeLessThan(LIMIT);
    const stat = await client.ask(setData(path, Buffer.from('two'), 0), LIMIT);
    expect([stat.version, stat.created]).toEqual([1, first.stat.created]);
    expect(stat.modified > stat.created).toBe(true);
    expect(await client.ask(exists(path), LIMIT)).toEqual(stat);
    expect(await client.ask(getChildren(path), LIMIT)).toEqual(['ä']);
    await client.ask(remove(`${path}/ä`, ANY_VERSION), LIMIT);
    await client.ask(remove(path, 1), LIMIT);
    expect(await codeOf(client.ask(exists(path), LIMIT))).toBe(Refusal.noNode);
  });

  test('names the refusal of a request, which has certainly had no effect', async () => {
    const client = await opened({ connectionString: server.address });
    const path = freshPath();
    await client.ask(create(path, NOTHING, world), LIMIT);
    await client.ask(create(`${path}/child`, NOTHING, world), LIMIT);
    for (const [request, code] of [
      [create(path, NOTHING, world), Refusal.nodeExists],
      [setData(path, NOTHING, 7), Refusal.badVersion],
      [setData(`${path}/none`, NOTHING, ANY_VERSION), Refusal.noNode],
      [remove(path, ANY_VERSION), Refusal.notEmpty],
    ] as const) {
      const error: unknown = await client.ask<unknown>(request, LIMIT).catch((thrown: unknown) => thrown);
      expect(isRefusal(error, code)).toBe(true);
      expect(error).toMatchObject({ certain: true });
    }
  });

  test('a transaction makes all changes or none, and compares version 0 as any other', async () => {
    const client = await opened({ connectionString: server.address });
    const [one, other] = [freshPath(), freshPath()];
    const created = await client.ask(
      multi([create(one, NOTHING, world), setData(one, Buffer.from('1'), 0), check(one, 1)]),
      LIMIT,
    );
    expect(created.map((stat) => stat?.version)).toEqual([undefined, 1, undefined]);
    const refusals = [setData(one, NOTHING, 0), check(one, 0), remove(one, 0)];
    for (const refusal of refusals) {
      const changes = [create(other, NOTHING, world), refusal, create(freshPath(), NOTHING, world)];
      expect(await codeOf(client.ask(multi(changes), LIMIT))).toBe(Refusal.badVersion);
    }
    expect(await codeOf(client.ask(exists(other), LIMIT))).toBe(Refusal.noNode);
    expect((await client.ask(getData(one), LIMIT)).data.toString()).toBe('1');
  });

  test('tells one change of each watched node, and of a watched list', async () => {
    const [client, another] = await Promise.all([
      opened({ connectionString: server.address }),
      opened({ connectionString: server.address }),
    ]);
    const [node, later] = [freshPath(), freshPath()];
    await client.ask(create(node, NOTHING, world), LIMIT);
    await client.ask(getData(node, true), LIMIT);
    expect(await codeOf(client.ask(exists(later, true), LIMIT))).toBe(Refusal.noNode);
    for (let time = 0; time < 2; time++) await another.ask(setData(node, NOTHING, ANY_VERSION), LIMIT);
    await another.ask(create(later, NOTHING, world), LIMIT);
    await until(() => client.told.watched.length === 2);
    await client.ask(getChildren(node, true), LIMIT);
    await another.ask(create(`${node}/child`, NOTHING, world), LIMIT);
    await until(() => client.told.watched.length === 3);
    expect(client.told.watched).toEqual([node, later, node]);
    expect(another.told.watched).toEqual([]);
  });

  test('keeps its nodes below the path of the connection string', async () => {
    const client = await opened({ connectionString: server.address });
    const path = freshPath();
    await client.ask(create(path, NOTHING, world), LIMIT);
    const inside = await opened({ connectionString: `${server.address}${path}` });
    await inside.ask(create('/inner', NOTHING, world), LIMIT);
    expect(await client.ask(getChildren(path), LIMIT)).toEqual(['inner']);
    await inside.ask(getData('/inner', true), LIMIT);
    await client.ask(setData(`${path}/inner`, NOTHING, ANY_VERSION), LIMIT);
    await until(() => inside.told.watched.length === 1);
    expect(inside.told.watched).toEqual(['/inner']);
  });

  test('an ephemeral node survives the connection, and ends with the session', async () => {
    const proxy = await startTcpProxy(server);
    const client = await opened({ connectionString: `${LOOPBACK}:${proxy.port}` });
    const observer = await opened({ connectionString: server.address });
    const path = freshPath();
    await client.ask(create(path, NOTHING, { ...world, isEphemeral: true }), LIMIT);
    proxy.cut();
    await until(() => client.told.ready === 2);
    expect(client.told.lost).toBe(1);
    await client.ask(exists(path), LIMIT);
    // This ends the session of the second connection. If it were another session, the node would stay for its time-out.
    await client.close(LIMIT);
    expect(await codeOf(observer.ask(exists(path), LIMIT))).toBe(Refusal.noNode);
  });

  test('asks for a new session when the servers have ended the old one', async () => {
    const proxy = await startTcpProxy(server);
    const client = await opened({ connectionString: `${LOOPBACK}:${proxy.port}` });
    const observer = await opened({ connectionString: server.address });
    const path = freshPath();
    await client.ask(create(path, NOTHING, { ...world, isEphemeral: true }), LIMIT);
    proxy.blackHole();
    await until(() => client.told.lost > 0);
    await until(async () => (await codeOf(observer.ask(exists(path), LIMIT))) === Refusal.noNode);
    proxy.heal();
    await until(() => client.told.ready === 2);
    await client.ask(create(path, NOTHING, world), LIMIT);
    expect((await observer.ask(exists(path), LIMIT)).version).toBe(0);
  });

  test('sends no request without a connection, and repeats none of a lost connection', async () => {
    const proxy = await startTcpProxy(server);
    const client = await opened({ connectionString: `${LOOPBACK}:${proxy.port}` });
    const path = freshPath();
    await client.ask(create(path, NOTHING, world), LIMIT);
    proxy.dropReplies();
    const unknown = client.ask(setData(path, NOTHING, ANY_VERSION), LIMIT);
    const observer = await opened({ connectionString: server.address });
    await until(async () => (await observer.ask(exists(path), LIMIT)).version === 1);
    proxy.cut();
    await expect(unknown).rejects.toMatchObject({ name: 'ZooKeeperError', certain: false, code: undefined });
    expect(client.available).toBe(false);
    await expect(client.ask(setData(path, NOTHING, ANY_VERSION), LIMIT)).rejects.toMatchObject({
      certain: true,
      message: expect.stringContaining(`no server is connected: ${LOOPBACK}:${proxy.port} `),
    });
    proxy.heal();
    await until(() => client.available);
    expect((await client.ask(exists(path), LIMIT)).version).toBe(1);
  });

  test('an answer that is late fails its request, and no other', async () => {
    const proxy = await startTcpProxy(server);
    const client = await opened({ connectionString: `${LOOPBACK}:${proxy.port}` });
    proxy.holdReplies();
    const late = client.ask(getChildren('/'), 20);
    const other = client.ask(getChildren('/'), LIMIT);
    await expect(late).rejects.toMatchObject({ certain: false });
    proxy.heal();
    expect(await other).toContain('zookeeper');
    expect(client.told).toMatchObject({ ready: 1, lost: 0 });
  });

  test('goes on at another server when a server is silent, and when it is gone', async () => {
    const [one, other] = await Promise.all([startTcpProxy(server), startTcpProxy(server)]);
    const client = await opened({
      connectionString: `${LOOPBACK}:${one.port},${LOOPBACK}:${other.port}`,
    });
    const [silent, next] = one.connectionCount > 0 ? [one, other] : [other, one];
    silent.blackHole();
    await expect(client.ask(getChildren('/'), LIMIT)).rejects.toMatchObject({ certain: false });
    await until(() => client.available);
    expect(next.connectionCount).toBe(1);
    silent.heal();
    await next.close();
    await until(() => client.told.ready === 3);
    expect(await client.ask(getChildren('/'), LIMIT)).toContain('zookeeper');
  });

  test('refuses a request that is too large, and keeps its connection', async () => {
    const client = await opened({ connectionString: server.address });
    const request = create(freshPath(), Buffer.alloc(1_000_000), world);
    await expect(client.ask(request, LIMIT)).rejects.toMatchObject({
      certain: true,
      message: expect.stringContaining('is too large for ZooKeeper'),
    });
    const path = freshPath();
    await client.ask(create(path, Buffer.alloc(900_000, 'x'), world), LIMIT);
    expect((await client.ask(getData(path), LIMIT)).data).toHaveLength(900_000);
    expect(client.told.lost).toBe(0);
  });

  test('with `auth`, nobody else may use its nodes', async () => {
    const auth = { username: 'locks', password: () => 'secret' };
    const client = await opened({ connectionString: server.address, auth });
    const path = freshPath();
    await client.ask(create(path, NOTHING, { access: client.access }), LIMIT);
    const same = await opened({
      connectionString: server.address,
      auth: { username: 'locks', password: 'secret' },
    });
    await same.ask(getData(path), LIMIT);
    for (const other of [undefined, { username: 'locks', password: 'other' }]) {
      const stranger = await opened({
        connectionString: server.address,
        ...(other ? { auth: other } : {}),
      });
      expect(await codeOf(stranger.ask(getData(path), LIMIT))).toBe(Refusal.noAuth);
    }
  });

  test("with the scheme 'sasl' a user of DIGEST-MD5 uses servers that ask for it, and nobody else may use its nodes", async () => {
    const user = { username: 'locks', password: 'pass,word=1' };
    const asking = await startSaslServer(user, { second: 'secret' });
    const { address: connectionString } = asking;
    const auth = { ...user, scheme: 'sasl' } as const;
    const client = await opened({ connectionString, auth });
    const path = freshPath();
    await client.ask(create(path, NOTHING, { access: client.access }), LIMIT);
    const same = await opened({ connectionString, auth: { ...auth, password: () => user.password } });
    await same.ask(getData(path), LIMIT);
    const other = await opened({
      connectionString,
      auth: { scheme: 'sasl', username: 'second', password: 'secret' },
    });
    expect(await codeOf(other.ask(getData(path), LIMIT))).toBe(Refusal.noAuth);
    for (const [wrong, reason] of [
      [{ ...auth, password: 'wrong' }, /did not take the login: the user or the password is wrong/],
      [{ ...auth, password: 'wörd' }, /did not take the login: .* only letters, digits and signs of ASCII/],
    ] as const)
      await expect(opened({ connectionString, auth: wrong })).rejects.toThrow(reason);
    // A server that answers and then ends the connection can end it before the client has read the answer.
    let refused = 'write EPIPE';
    for (let tries = 0; tries < 20 && /EPIPE|ECONNRESET|ended the connection/.test(refused); tries++) {
      const store = zookeeper({ connectionString }).openStore(newTerms());
      cleanUpAfterTests(() => store.close());
      refused = await store.connect().then(
        () => 'connected',
        (error: Error) => error.message,
      );
    }
    expect(refused).toMatch(/give `auth` with `scheme: 'sasl'`/);
    await asking.stop();
  });

  test("the scheme 'sasl' fails on servers without DIGEST-MD5, with the reason", async () => {
    const auth = { scheme: 'sasl', username: 'locks', password: 'secret' } as const;
    await expect(opened({ connectionString: server.address, auth })).rejects.toThrow(
      /did not take the login: the server offers no login by DIGEST-MD5/,
    );
  });

  test('speaks TLS, and says so when one of the two sides does not', async () => {
    const secure = `${LOOPBACK}:${server.securePort}`;
    const client = await opened({ connectionString: secure, tls: { ca: certificate.cert } });
    expect(await client.ask(getChildren('/'), LIMIT)).toContain('zookeeper');
    await expect(opened({ connectionString: secure })).rejects.toThrow(/whether this port needs `tls`/);
    await expect(opened({ connectionString: secure, tls: {} })).rejects.toThrow(/self-signed certificate/);
  });

  test('`open` rejects with the reason of every server when none can be reached, and goes on trying', async () => {
    const [one, other] = await Promise.all([freePort(), freePort()]);
    const client = new TestClient({ connectionString: `${LOOPBACK}:${one},${LOOPBACK}:${other}` });
    await expect(client.open()).rejects.toThrow(
      new RegExp(
        `${LOOPBACK}:(${one}|${other}) .*ECONNREFUSED.*; ${LOOPBACK}:(${one}|${other}) .*ECONNREFUSED`,
      ),
    );
    expect(client.told.lost).toBe(2);
    await until(() => client.told.lost > 3);
  });
});
