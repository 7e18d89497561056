import { beforeAll, describe, expect, test } from '@jest/globals';
import { generateKeyPairSync } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { UnfitStoreError } from '../../../lib/core/errors.js';
import { Lease } from '../../../lib/core/lease.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import type { EtcdOptions } from '../../../lib/stores/etcd/etcd.options.js';
import { EtcdStore } from '../../../lib/stores/etcd/etcd-store.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { selfSigned } from '../../support/certificate.js';
import { redlockOver } from '../../support/core.js';
import { type EtcdServer, hasEtcd, startEtcd } from '../../support/etcd-server.js';
import { freePort, LOOPBACK } from '../../support/free-port.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { PATIENT } from '../../support/patience.js';
import { newTerms } from '../../support/postgres-store.js';
import { until } from '../../support/until.js';
import { renewed } from '../lock-lifetime.js';

// An etcd with TLS, or with users and passwords.

const once: AcquireTerms = { ttl: 60_000, renew: true, signals: [], retry: NO_RETRY };
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 50_000, attempts: Infinity, delay: 5_000, jitter: 20 },
};

const ifEtcd = hasEtcd() ? describe : describe.skip;
let nextKey = 0;

const freshKey = (): string => `key:${nextKey++}`;

async function folderWith(files: Readonly<Record<string, string>>): Promise<(name: string) => string> {
  const folder = await mkdtemp(join(tmpdir(), 'etcd-access-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  for (const [name, content] of Object.entries(files)) await writeFile(join(folder, name), content);
  return (name) => join(folder, name);
}

function newStore(options: EtcdOptions): EtcdStore {
  const store = new EtcdStore(options, newTerms());
  cleanUpAfterTests(() => store.close());
  return store;
}

async function openStore(options: EtcdOptions): Promise<EtcdStore> {
  const store = newStore(options);
  await store.connect();
  return store;
}

/**
 * Acquires a lock and releases it to a waiter in another store, so that every kind of request that locks need is sent.
 * Resolves to true if the second token is larger.
 */
async function handsOver(options: EtcdOptions): Promise<boolean> {
  const store = await openStore(options);
  const [one, other] = [store, await openStore(options)].map((each) => redlockOver([each], PATIENT)) as [
    Redlock,
    Redlock,
  ];
  const key = freshKey();
  const lock = await one.acquire([key], once);
  await expect(one.acquire([key], once)).rejects.toMatchObject({ code: 'LOCK_HELD' });
  const next = other.acquire([key], waiting);
  await until(async () => (await store.waiting([key]))[0]?.length === 1);
  await lock.release();
  const after = await next;
  await after.release();
  await Promise.all([one.close(), other.close()]);
  return after.fencingToken > lock.fencingToken;
}

async function locksWith(redlock: Redlock): Promise<boolean> {
  const lock = await redlock.acquire([freshKey()], once);
  await lock.release();
  return lock.fencingToken > 0;
}

ifEtcd('an etcd store over TLS, with client certificates required', () => {
  const own = selfSigned();
  const client = selfSigned();
  let secure: string;
  let server: EtcdServer;

  beforeAll(async () => {
    const file = await folderWith({
      'server.pem': own.cert,
      'server.key': own.key,
      'authorities.pem': own.cert + client.cert,
    });
    secure = `https://${LOOPBACK}:${await freePort()}`;
    const args = ['--cert-file', file('server.pem'), '--key-file', file('server.key')];
    server = await startEtcd({
      alsoAt: secure,
      args: [...args, '--client-cert-auth', '--trusted-ca-file', file('authorities.pem')],
    });
  });

  test('an etcd store grants, refuses and hands over a lock with `ca`, `cert` and `key` in `tls`', async () => {
    expect(await handsOver({ endpoints: secure, tls: { ...client, ca: own.cert } })).toBe(true);
  });

  test.each([
    [
      'the certificate of the server is not trusted',
      () => ({ endpoints: secure, tls: client }),
      /self-signed certificate/,
    ],
    ['the client gives no certificate', () => ({ endpoints: secure, tls: { ca: own.cert } }), /certificate/],
    [
      'the URL has http:// and the server expects TLS',
      () => ({ endpoints: secure.replace('https', 'http') }),
      /check whether its URL must begin with https:\/\//,
    ],
    [
      'the URL has https:// and the server has no TLS',
      () => ({ endpoints: server.url.replace('http', 'https'), tls: { ca: own.cert } }),
      /check whether its URL must begin with http:\/\//,
    ],
  ] as const)('an etcd store fails to connect, and the error says why: %s', async (_, options, message) => {
    await expect(newStore(options()).connect()).rejects.toThrow(message);
  });
});

ifEtcd('an etcd store with a user and a password', () => {
  const NAME = 'locks';
  const SECRET = 'open sesame';
  let server: EtcdServer;
  /** The present password of the user. */
  let secret = SECRET;
  let early: EtcdStore;
  let logins = 0;

  const login = (): EtcdOptions => ({
    endpoints: server.url,
    username: NAME,
    password: () => {
      logins++;
      return secret;
    },
  });

  async function asRoot(path: string, body: object): Promise<void> {
    const { token } = await server.call<{ token: string }>('auth/authenticate', {
      name: 'root',
      password: SECRET,
    });
    const response = await fetch(`${server.url}/v3/${path}`, {
      method: 'POST',
      body: JSON.stringify(body),
      headers: { authorization: token },
    });
    if (!response.ok) throw new Error(await response.text());
  }

  beforeAll(async () => {
    const { publicKey, privateKey } = generateKeyPairSync('ec', {
      namedCurve: 'P-256',
      publicKeyEncoding: { type: 'spki', format: 'pem' },
      privateKeyEncoding: { type: 'sec1', format: 'pem' },
    });
    const file = await folderWith({ 'public.pem': publicKey, 'private.pem': privateKey });
    // An auth token of this kind (JWT) expires after its ttl, and when users or roles change. Simple auth tokens,
    // the other kind, last while they are used.
    const token = `jwt,pub-key=${file('public.pem')},priv-key=${file('private.pem')},sign-method=ES256,ttl=2s`;
    server = await startEtcd({ args: ['--auth-token', token, '--bcrypt-cost', '4'] });
    early = await openStore(login());
    const [key, range_end] = ['nestjs-redlock/', 'nestjs-redlock0'].map((text) =>
      Buffer.from(text).toString('base64'),
    );
    for (const name of ['root', NAME]) await server.call('auth/user/add', { name, password: SECRET });
    for (const name of ['root', NAME]) await server.call('auth/role/add', { name });
    await server.call('auth/role/grant', { name: NAME, perm: { permType: 'READWRITE', key, range_end } });
    for (const name of ['root', NAME]) await server.call('auth/user/grant', { user: name, role: name });
    await server.call('auth/enable', {});
  });

  test('an etcd store acquires a lock after etcd enables `auth` while the store is connected', async () => {
    const redlock = redlockOver([early], PATIENT);
    await expect(locksWith(redlock)).resolves.toBe(true);
    await redlock.close();
  });

  test('an etcd store grants, refuses and hands over a lock when its role has rights only to the keys with the prefix', async () => {
    expect(await handsOver(login())).toBe(true);
  });

  test('an etcd store keeps its locks when its auth token expires, and many requests share one new login', async () => {
    const [redlock, idle] = [redlockOver([await openStore(login())], PATIENT), await openStore(login())];
    const key = freshKey();
    const held = await redlock.acquire([key], { ...waiting, ttl: 9_000 });
    const next = redlock.acquire([key], waiting);
    // The renewal comes after a third of the ttl, when the auth token has expired.
    await renewed([held]);
    await held.release();
    await (await next).release();
    await redlock.close();

    logins = 0;
    const leases = Array.from({ length: 30 }, () => new Lease([freshKey()], 'me', 20_000));
    await Promise.all(leases.map((lease) => acquireOn(idle, lease)));
    // All requests share one login. A busy machine needs another login if the new auth token expires meanwhile.
    expect(logins).toBeGreaterThan(0);
    expect(logins).toBeLessThan(5);
    await Promise.all(leases.map((lease) => releaseOn(idle, lease)));
  });

  test('an etcd store logs in again after a new role invalidates all auth tokens', async () => {
    const redlock = redlockOver([await openStore(login())], PATIENT);
    await asRoot('auth/role/add', { name: 'another' });
    await expect(locksWith(redlock)).resolves.toBe(true);
    await redlock.close();
  });

  test('an etcd store asks again for a password that does not come, at the start and while it holds a lock', async () => {
    const never = new Promise<string>(() => undefined);
    let asked = 0;
    const starting = newStore({ ...login(), password: () => (asked++ === 0 ? never : secret) });
    let hangs = false;
    const holding = await openStore({ ...login(), password: () => (hangs ? never : secret) });
    const lease = new Lease([freshKey()], 'me', 60_000);
    await acquireOn(holding, lease);
    hangs = true;
    // This ends all auth tokens.
    await asRoot('auth/role/add', { name: 'one more' });
    const late = /the login takes longer|`password` failed: no answer within 5000 ms/;
    await Promise.all([
      expect(starting.connect()).rejects.toThrow(late),
      expect(extendOn(holding, lease, 60_000)).rejects.toThrow(late),
    ]);
    hangs = false;
    await until(() => starting.available);
    expect(asked).toBe(2);
    const other = new Lease([freshKey()], 'me', 60_000);
    expect(await acquireOn(starting, other)).toMatchObject({ granted: true });
    await until(() => extendOn(holding, lease, 60_000).catch(() => false));
    await Promise.all([releaseOn(holding, lease), releaseOn(starting, other)]);
  });

  test('a store that is closed while it waits for a password rejects at once', async () => {
    const store = newStore({ ...login(), password: () => new Promise<string>(() => undefined) });
    const connecting = store.connect();
    await store.close();
    await expect(connecting).rejects.toThrow('the store was closed');
  });

  test.each([
    ['a wrong password', { username: NAME, password: 'no' }, /does not let locks log in: .*failed/],
    ['an unknown user', { username: 'nobody', password: SECRET }, /does not let nobody log in/],
    ['no user', {}, /user name is empty.*give `username` and `password`/],
    [
      'a role that may not write keys with the prefix',
      { username: NAME, password: SECRET, prefix: 'other/' },
      /permission denied.*keys that begin with `prefix`/,
    ],
    [
      'a password function that fails',
      { username: NAME, password: () => Promise.reject(new Error('no vault')) },
      /`password` failed: no vault\. Correct the function that you gave as `password`/,
    ],
  ])('with %s, an etcd store fails to connect and reports the state `unfit`', async (_, options, message) => {
    const store = newStore({ endpoints: server.url, ...options });
    const error: unknown = await store.connect().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(UnfitStoreError);
    expect(String(error)).toMatch(message);
    expect(await store.check()).toMatchObject({ state: 'unfit', reason: expect.stringMatching(message) });
  });

  test('an etcd store reports no warning when its role has rights only to the keys with the prefix', async () => {
    expect(await (await openStore(login())).check()).toEqual({ state: 'voting', warnings: [] });
  });

  test('an etcd store rejects acquires while its password is wrong, and recovers with the right password', async () => {
    const redlock = redlockOver([await openStore(login())], PATIENT);
    await asRoot('auth/user/changepw', { name: NAME, password: 'another' });
    await expect(redlock.acquire([freshKey()], once)).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
      message: expect.stringContaining('does not let locks log in'),
    });
    secret = 'another';
    await expect(locksWith(redlock)).resolves.toBe(true);
    await redlock.close();
  });
});
