import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { Lease } from '../../../lib/core/lease.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import { EXCLUSIVE, type LockKind, SHARED } from '../../../lib/core/lock-mode.js';
import type { AcquireReply, Tell } from '../../../lib/core/ports.js';
import { openClient } from '../../../lib/stores/redis/connection/connection.js';
import { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { glide, storeOver } from '../../support/clients.js';
import { acquireOn } from '../../support/ask-store.js';
import { newFleet, redlockOver } from '../../support/core.js';
import { PATIENT } from '../../support/patience.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

// Several leases share one command. One of their keys has a fault, and the server then refuses the whole command or
// stops the script.

const TTL = 60_000;
const PERMITS: LockKind = { mode: 'permits', permits: 3 };
const KINDS: readonly (readonly [name: string, kind: LockKind])[] = [
  ['exclusive', EXCLUSIVE],
  ['shared', SHARED],
  ['permits', PERMITS],
];

/** Values that another program may have stored under a Redis key of a lock. */
const FOREIGN = ['a list', 'a text', 'a hash', 'a sorted set'] as const;

/** The ends of the Redis keys of a lock; the record has none. */
const ENDS = ['', ':q', ':h', ':s', ':w'] as const;

let server: RedisServer;
let looker: Redis;
let node: RedisStore;
/** The same node over a client of GLIDE, whose errors have another form. */
let overGlide: RedisStore;

beforeAll(async () => {
  server = await startRedis();
  looker = server.client();
  await looker.call('ACL', 'SETUSER', 'locks', 'on', '>secret', '&*', '+@all', '~*');
  node = new RedisStore(openClient(server.url.replace('//', '//locks:secret@')), true, newFleet());
  const credentials = { username: 'locks', password: 'secret' };
  overGlide = storeOver(await glide(server, { credentials }), newFleet());
  await Promise.all([node.connect(), overGlide.connect()]);
});
afterAll(async () => {
  await Promise.all([node.close(), overGlide.close()]);
  await server.stop();
});

/** Sends requests for all leases in one call of the store. Resolves to the answers. */
function together<Reply>(
  leases: readonly Lease[],
  ask: (tell: Tell<Reply>) => void,
): Promise<(Reply | Error)[]> {
  const answers: (Reply | Error)[] = [];
  return new Promise((resolve) => {
    let missing = leases.length;
    ask((index, reply) => {
      answers[index] = reply;
      if (--missing === 0) resolve(answers);
    });
  });
}

function acquire(leases: readonly Lease[], at = node): Promise<(AcquireReply | Error)[]> {
  const terms = { since: Date.now(), limit: 60_000, guard: 0, proposal: 0, position: undefined };
  return together(leases, (tell) =>
    at.acquire(
      leases.map((lease) => ({ lease, ...terms })),
      true,
      tell,
    ),
  );
}

function extend(leases: readonly Lease[], at = node): Promise<(boolean | Error)[]> {
  return together(leases, (tell) => at.extend(leases, TTL, tell));
}

function release(leases: readonly Lease[], at = node): Promise<(undefined | Error)[]> {
  for (const lease of leases) lease.ended = true;
  return together(leases, (tell) =>
    at.release(
      leases.map((lease) => ({ lease, pause: 0 })),
      tell,
    ),
  );
}

/** A lease on a key of its own, whose name begins with `name`. */
function leaseOn(name: string, kind: LockKind): Lease {
  return new Lease([`${name}:${Math.random()}`], 'me', TTL, undefined, kind);
}

async function forbid(key: string): Promise<void> {
  await looker.call('ACL', 'SETUSER', 'locks', 'resetkeys', '~lock:{good*', '~lock:redlock*');
  await expect(looker.call('ACL', 'DRYRUN', 'locks', 'GET', key)).resolves.not.toBe('OK');
}

async function allowAll(): Promise<void> {
  await looker.call('ACL', 'SETUSER', 'locks', 'resetkeys', '~*');
}

async function storeForeign(key: string, what: (typeof FOREIGN)[number]): Promise<void> {
  await looker.del(key);
  if (what === 'a list') await looker.rpush(key, 'foreign');
  else if (what === 'a text') await looker.set(key, 'foreign');
  else if (what === 'a hash') await looker.hset(key, 'foreign', 'foreign');
  else await looker.zadd(key, 1, 'foreign');
}

describe.each(KINDS)('several leases in one command (%s)', (_, kind) => {
  test.each([
    ['ioredis', () => node],
    ['GLIDE', () => overGlide],
  ])(
    'a store over %s grants, extends and releases the other leases when the user has no right to one key',
    async (__, over) => {
      const at = over();
      const leases = ['good', 'bad', 'good'].map((name) => leaseOn(name, kind));
      const bad = `lock:{${leases[1]!.keys[0]}}`;
      const refused = { message: expect.stringMatching(/NOPERM|No permissions/) as unknown };
      try {
        await forbid(bad);
        const granted = { granted: true };
        await expect(acquire(leases, at)).resolves.toMatchObject([granted, refused, granted]);
        await expect(extend(leases, at)).resolves.toMatchObject([true, refused, true]);
        await expect(release(leases, at)).resolves.toMatchObject([undefined, refused, undefined]);
      } finally {
        await allowAll();
      }
    },
  );

  test.each(ENDS)(
    'a store extends and releases the other leases whatever else is stored under the Redis key that ends in "%s"',
    async (end) => {
      for (const what of FOREIGN) {
        const leases = ['good', 'bad', 'good'].map((name) => leaseOn(name, kind));
        const [bad] = leases[1]!.keys;
        await acquire(leases);
        // A second holder makes the scripts use all Redis keys of the lock.
        const second = new Lease([bad!], 'you', TTL / 2, undefined, kind);
        const waiter = { process: '0'.repeat(16), mode: kind.mode, number: 1, owner: 'you', keys: [bad!] };
        await acquireOn(node, second, {
          ordered: true,
          position: { waiter, waited: 0, next: undefined },
        });
        await storeForeign(`lock:{${bad}}${end}`, what);

        const [first, , last] = await extend(leases);
        expect({ what, first, last }).toEqual({ what, first: true, last: true });
        const others = ['good', 'bad', 'good'].map((name, index) =>
          index === 1 ? new Lease([bad!], 'other', TTL, undefined, kind) : leaseOn(name, kind),
        );
        const [one, , three] = await acquire(others);
        expect({ what, one, three }).toMatchObject({ one: { granted: true }, three: { granted: true } });
        const [before, , after] = await release(leases);
        expect({ what, before, after }).toEqual({ what, before: undefined, after: undefined });
      }
    },
  );
});

test('only the lock on the forbidden key is lost when the user loses the right to the key', async () => {
  const redlock = redlockOver([node], PATIENT);
  const hold = (name: string, ttl: number) =>
    redlock.acquire([`${name}:${Math.random()}`], { ttl, retry: NO_RETRY, renew: true, signals: [] });
  const [good, bad] = await Promise.all([hold('good', 1_500), hold('bad', 1_500)]);
  try {
    await forbid(`lock:{${bad.keys[0]}}`);
    await new Promise((resolve) => bad.signal.addEventListener('abort', resolve));
    expect(good.isHeld()).toBe(true);
  } finally {
    await allowAll();
    await Promise.all([good.release(), bad.release()]);
  }
});

test('a store reads the other locks when the user has no right to one key', async () => {
  const leases = ['good', 'bad'].map((name) => leaseOn(name, EXCLUSIVE));
  await acquire(leases);
  const keys = leases.map(({ keys: [key] }) => key!);
  try {
    await forbid(`lock:{${keys[1]}}`);
    const [good, bad] = await node.read(keys);
    expect(good).toMatchObject({ holders: [{ owner: 'me' }] });
    expect(bad).toMatchObject({ message: expect.stringMatching(/NOPERM|No permissions/) as unknown });
    await expect(node.waiting(keys)).resolves.toEqual([[], []]);
  } finally {
    await allowAll();
  }
});
