import { setImmediate as nextTurn } from 'node:timers/promises';
import { Lease } from '../../lib/core/lease.js';
import type {
  AcquireReply,
  AcquireRequest,
  ExchangeRequest,
  HeldKey,
  ReleaseRequest,
  Store,
  StarvationGuard,
} from '../../lib/core/ports.js';
import type { WaiterId } from '../../lib/core/waiter-id.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { tellEach, tokenAt } from '../../lib/store/index.js';
import { acquireOn, releaseOn } from '../support/ask-store.js';
import { type Row, FREE, type Table, TableStore } from './table-store.js';

/** A store that breaks one rule, and the test of the contract suite that rejects it. */
export interface WrongStore {
  /** The mistake, as the end of a sentence that begins with "a store that". */
  readonly mistake: string;
  /** The beginning of the name of the test. */
  readonly rejectedBy: string;
  readonly make: () => Store;
}

/** A right store whose rows begin with tokens ahead of its clock, as after a move from another store. */
export class RightTableStore extends TableStore {
  constructor(protected readonly rows: Table = aheadTable()) {
    super(rows);
  }
}

const WRONG_EXCLUSION: readonly WrongStore[] = [
  {
    mistake: 'finds the key free in one step, and locks it in another',
    rejectedBy: "grants as many of 20 simultaneous requests in the mode 'exclusive', in separate calls",
    make: memory((right) => ({
      acquire: answering(async (request, ordered) => {
        const { keys } = request.lease;
        const [state] = await right.read(keys);
        await nextTurn();
        if (!state) await removeHolders(right, keys);
        return acquireOn(right, request.lease, { ...request, ordered });
      }),
    })),
  },
  {
    mistake: 'adds a reader to a copy of the readers, and loses readers that came meanwhile',
    rejectedBy: "grants as many of 20 simultaneous requests in the mode 'shared', in one call",
    make: memory((right) => ({
      acquire: answering(async (request, ordered) => {
        const [before] = (await right.read(request.lease.keys)) as readonly (HeldKey | undefined)[];
        await nextTurn();
        await removeHolders(right, request.lease.keys, before);
        return acquireOn(right, request.lease, { ...request, ordered });
      }),
    })),
  },
  {
    mistake: 'locks several keys one after the other',
    rejectedBy: 'locks none of several keys, not even for a moment',
    make: memory((right) => ({ acquire: answering((request) => oneByOne(right, request)) })),
  },
  {
    mistake: 'checks several keys, and then locks them one after the other',
    rejectedBy: 'of simultaneous requests for overlapping keys, in separate calls',
    make: memory((right) => ({
      acquire: answering(async (request, ordered) => {
        const states = await right.read(request.lease.keys);
        if (states.some(Boolean)) return acquireOn(right, request.lease, { ...request, ordered });
        await nextTurn();
        return oneByOne(right, request);
      }),
    })),
  },
  {
    mistake: 'lets a writer join readers',
    rejectedBy: "refuses the mode 'exclusive', and names a holder, until all holders in the mode 'shared'",
    make: memory((right) => ({
      acquire: answering(async (request, ordered) => {
        const [state] = (await right.read(request.lease.keys)) as readonly (HeldKey | undefined)[];
        if (request.lease.kind.mode === 'exclusive' && state?.mode === 'shared')
          return { granted: true, token: tokenAt(Date.now()) };
        return acquireOn(right, request.lease, { ...request, ordered });
      }),
    })),
  },
  {
    mistake: 'counts permits in place of slots',
    rejectedBy: 'admits at most 5 holders at a time, each with a slot of its own',
    make: memory((right) => ({
      acquire: answering(async (request, ordered) => {
        const { lease } = request;
        const states = (await right.read(lease.keys)) as readonly (HeldKey | undefined)[];
        const reply = await acquireOn(right, lease, { ...request, ordered });
        if (!reply.granted || !reply.slots) return reply;
        return { ...reply, slots: states.map((state) => state?.holders.length ?? 0) };
      }),
    })),
  },
  {
    mistake: 'stores a request that arrives after its time limit',
    rejectedBy: 'stores nothing when the time limit of the request has passed',
    make: memory((right) => ({
      acquire: (requests, ordered, tell) =>
        right.acquire(
          requests.map((request) => ({ ...request, limit: 10_000 })),
          ordered,
          tell,
        ),
    })),
  },
  {
    mistake: 'stores a request whose lease has ended meanwhile',
    rejectedBy: 'undoes acquisitions that are still under way when their leases are released',
    make: memory((right) => ({
      acquire: answering(async (request, ordered) => {
        await nextTurn();
        await nextTurn();
        return acquireOn(right, request.lease, { ...request, ordered });
      }),
      release: (requests, tell) =>
        tellEach(requests, tell, async ({ lease }) => {
          for (const key of lease.keys) await right.forceRelease(key, [lease.id]);
          return undefined;
        }),
    })),
  },
  {
    mistake: 'grants a released lease again',
    rejectedBy: 'does not grant the last released lease of a key a second time',
    make: memory((right) => {
      const ended = new Set<string>();
      return {
        acquire: answering(async (request, ordered) =>
          ended.has(request.lease.id)
            ? { granted: true, token: tokenAt(Date.now()) }
            : acquireOn(right, request.lease, { ...request, ordered }),
        ),
        release: (requests, tell) => {
          for (const { lease } of requests) ended.add(lease.id);
          right.release(requests, tell);
        },
      };
    }),
  },
];

const WRONG_HEALING: readonly WrongStore[] = [
  {
    mistake: 'does not know requests that heal',
    rejectedBy: 'stores the lease of a lock that heals again after its end',
    make: memory((right) => ({
      acquire: (requests, ordered, tell) =>
        right.acquire(
          requests.map((request) => ({ ...request, heals: false })),
          ordered,
          tell,
        ),
    })),
  },
  {
    mistake: 'heals a lock that another lease excludes',
    rejectedBy: 'does not heal a lock on a node where another lease excludes it',
    make: memory((right) => ({
      acquire: answering(async (request, ordered) => {
        if (request.heals) await removeHolders(right, request.lease.keys);
        return acquireOn(right, request.lease, { ...request, ordered });
      }),
    })),
  },
  {
    mistake: 'heals a reader with the token of the other readers',
    rejectedBy: 'gives a reader that heals beside other readers its own larger token',
    make: memory((right) => ({
      acquire: answering(async (request, ordered) => {
        const [state] = await right.read(request.lease.keys);
        const joins = request.heals && state && 'mode' in state && state.mode === 'shared';
        return acquireOn(right, request.lease, { ...request, ordered, ...(joins ? { proposal: 0 } : {}) });
      }),
    })),
  },
];

const WRONG_ENDS: readonly WrongStore[] = [
  {
    mistake: "counts the ttl from the time of the caller's clock",
    rejectedBy: 'counts a ttl from the time of the store',
    make: memory((right) => ({
      acquire: (requests, ordered, tell) => {
        for (const [index, request] of requests.entries()) {
          const { lease, since } = request;
          const { ttl } = lease;
          lease.ttl = ttl + since - Date.now();
          right.acquire([request], ordered, (_, reply) => tell(index, reply));
          lease.ttl = ttl;
        }
      },
    })),
  },
  {
    mistake: 'finds the lease held in one step, and writes a new end in another',
    rejectedBy: "does not restore a lease in the mode 'exclusive' that is extended while its release ends it",
    make: table(
      class extends RightTableStore {
        override extend: Store['extend'] = (leases, ttl, tell) =>
          tellEach(leases, tell, async ({ id, keys }) => {
            const isHeld = await this.rows.change(keys, (rows, now) =>
              rows.every((row) => holds(row, id, now)),
            );
            if (!isHeld) return false;
            await nextTurn();
            return this.rows.change(keys, (rows, now) => {
              for (const row of rows) Object.assign(row, { id, released: false, ends: now + ttl });
              return true;
            });
          });
      },
    ),
  },
  {
    mistake: 'shortens a lease with an extension',
    rejectedBy: 'extends a held lease, and never shortens it',
    make: table(
      class extends RightTableStore {
        override extend: Store['extend'] = (leases, ttl, tell) =>
          tellEach(leases, tell, ({ id, keys }) =>
            this.rows.change(keys, (rows, now) => {
              if (!rows.every((row) => holds(row, id, now))) return false;
              for (const row of rows) row.ends = now + ttl;
              return true;
            }),
          );
      },
    ),
  },
  {
    mistake: 'extends only the first of several keys',
    rejectedBy: 'extends a held lease, and never shortens it',
    make: memory((right) => ({
      extend: (leases, ttl, tell) =>
        right.extend(
          leases.map((lease) => withKeys(lease, lease.keys.slice(0, 1))),
          ttl,
          tell,
        ),
    })),
  },
  {
    mistake: 'extends simultaneous holders of a key by the ttl of the first one',
    rejectedBy: 'keeps a key for the longest of the ttls to which its holders are extended at the same time',
    make: memory((right) => {
      const first = new Map<string | undefined, number>();
      return {
        extend: (leases, ttl, tell) => {
          const [key] = leases[0]?.keys ?? [];
          first.set(key, first.get(key) ?? ttl);
          setImmediate(() => first.delete(key));
          right.extend(leases, Math.min(first.get(key) ?? ttl, ttl), tell);
        },
      };
    }),
  },
  {
    mistake: 'gives all holders of a key one end',
    rejectedBy: 'each holder has its own time of expiry',
    make: memory((right) => {
      const leases = new Set<Lease>();
      return {
        acquire: (requests, ordered, tell) => {
          for (const { lease } of requests) leases.add(lease);
          right.acquire(requests, ordered, tell);
        },
        extend: (extended, ttl, tell) => {
          const others = [...leases].filter(
            (lease) => !extended.includes(lease) && lease.keys[0] === extended[0]?.keys[0],
          );
          right.extend(others, ttl, () => undefined);
          right.extend(extended, ttl, tell);
        },
      };
    }),
  },
  {
    mistake: 'releases the key whoever holds it',
    rejectedBy: 'ignores the release of a lease that does not hold the key',
    make: memory((right) => ({
      release: (requests, tell) =>
        tellEach(requests, tell, async ({ lease, pause }) => {
          if (lease.keepFor === 0) await removeHolders(right, lease.keys);
          return releaseOn(right, lease, pause);
        }),
    })),
  },
  {
    mistake: 'ends all holders by force, whatever ids are given',
    rejectedBy: '`forceRelease` ends the holders with the given ids',
    make: memory((right) => ({ forceRelease: (key) => removeHolders(right, [key]) })),
  },
  {
    mistake: 'frees a key in one step, and keeps it in another',
    rejectedBy: "does not free a key in the mode 'exclusive' for a moment",
    make: table(
      class extends RightTableStore {
        override release: Store['release'] = (requests, tell) =>
          tellEach(requests, tell, async ({ lease: { id, keys, keepFor } }) => {
            const end = (released: boolean, ends: number): Promise<void> =>
              this.rows.change(keys, (rows, now) => {
                for (const row of rows) if (row.id === id) Object.assign(row, { released, ends: now + ends });
              });
            await end(false, 0);
            await nextTurn();
            await end(true, keepFor);
            return undefined;
          });
      },
    ),
  },
  {
    mistake: 'forgets the last token of a key that is released by force',
    rejectedBy: 'gives a larger token after a lease that was released by force',
    make: table(
      class extends RightTableStore {
        override forceRelease: NonNullable<Store['forceRelease']> = (key, ids) =>
          this.rows.change([key], ([row], now) => {
            if (!ids.includes(row.id) || row.ends <= now) return [];
            const { id } = row;
            Object.assign(row, FREE);
            return [id];
          });
      },
    ),
  },
  {
    mistake: 'forgets the last token of a key that is released',
    rejectedBy: 'gives a larger token after a lease that was released, even',
    make: table(
      class extends RightTableStore {
        override release: Store['release'] = (requests, tell) =>
          tellEach(requests, tell, async ({ lease: { id, keys } }) => {
            await this.rows.change(keys, (rows) => {
              for (const row of rows) if (row.id === id) Object.assign(row, FREE);
            });
            return undefined;
          });
      },
    ),
  },
];

const WRONG_TICKS: readonly WrongStore[] = [
  {
    mistake: 'frees the key in one step, and stores the tick in another',
    rejectedBy: 'grants a tick to no other caller while the release of its lease is under way',
    make: memory((right) => ({
      release: (requests, tell) =>
        tellEach(requests, tell, async ({ lease, pause }) => {
          for (const key of lease.keys) await right.forceRelease(key, [lease.id]);
          await nextTurn();
          return releaseOn(right, lease, pause);
        }),
    })),
  },
  {
    mistake: 'does not store the tick of a lease that has expired',
    rejectedBy: 'records a tick when its lease is released, even if that lease has expired',
    make: memory((right) => ({
      release: (requests, tell) =>
        tellEach(requests, tell, async ({ lease, pause }) => {
          const [state] = (await right.read(lease.keys)) as readonly (HeldKey | undefined)[];
          if (state?.holders.some(({ id }) => id === lease.id)) return releaseOn(right, lease, pause);
          return undefined;
        }),
    })),
  },
];

const WRONG_ANSWERS: readonly WrongStore[] = [
  {
    mistake: 'gives all requests of a call the answer to the first',
    rejectedBy: 'answers each request of a call once, with its own answer',
    make: memory((right) => ({
      extend: (leases, ttl, tell) => {
        let first: boolean | Error;
        right.extend(leases, ttl, (index, reply) => tell(index, (first ??= reply)));
      },
    })),
  },
  {
    mistake: 'answers a request twice',
    rejectedBy: 'answers each request of a call once, with its own answer',
    make: memory((right) => ({
      acquire: (requests, ordered, tell) =>
        right.acquire(requests, ordered, (index, reply) => {
          tell(index, reply);
          tell(index, reply);
        }),
    })),
  },
  {
    mistake: 'reads keys in an order of its own',
    rejectedBy: 'reads keys in the given order',
    make: memory((right) => ({ read: (keys) => right.read(keys.toSorted()) })),
  },
  {
    mistake: 'shows holders that have expired',
    rejectedBy: 'does not report expired holders',
    make: table(
      class extends RightTableStore {
        override read: NonNullable<Store['read']> = (keys) =>
          this.rows.change(keys, (rows, now) =>
            rows.map(({ id, owner, since, token, ends, released }) => {
              if (released) return undefined;
              const remaining = Math.max(1, ends - now);
              const holder = { id, owner, since, fencingToken: token, remaining, mode: 'exclusive' as const };
              return { mode: 'exclusive', holders: [holder] };
            }),
          );
      },
    ),
  },
  {
    mistake: 'finds only the first hundred keys',
    rejectedBy: 'finds every held key, in pages that one read accepts',
    make: memory((right) => ({
      scan: async function* (prefix: string) {
        for await (const page of right.scan(prefix)) return yield page.slice(0, 100);
      },
    })),
  },
  {
    mistake: 'regards a prefix as a pattern',
    rejectedBy: 'regards the characters of a prefix as text and not as a pattern',
    make: memory((right) => ({
      scan: async function* (prefix: string) {
        const escaped = prefix.replaceAll(/[[\]{}()\\.^$|+]/g, String.raw`\$&`);
        const pattern = new RegExp(`^${escaped.replaceAll('*', '.*').replaceAll(/[?_]/g, '.')}`);
        for await (const page of right.scan('')) yield page.filter((key) => pattern.test(key));
      },
    })),
  },
  ...[
    { what: 'case', fold: (key: string) => key.toLowerCase() },
    { what: 'spaces at the end', fold: (key: string) => key.trimEnd() },
    { what: 'accents', fold: (key: string) => key.normalize('NFD').replaceAll(/\p{M}/gu, '') },
    { what: 'more than 255 characters', fold: (key: string) => key.slice(0, 255) },
  ].map(({ what, fold }): WrongStore => ({
    mistake: `ignores ${what} in keys`,
    rejectedBy: 'keeps keys apart that some databases regard as equal',
    make: () => new RightTableStore(aheadTable(fold)),
  })),
];

const WRONG_QUEUES: readonly WrongStore[] = [
  {
    mistake: 'tells nobody about a release by force',
    rejectedBy: "tells a waiter in the mode 'exclusive' when the holder is released by force",
    make: silentIn((right, silently) => ({
      forceRelease: (key, ids) =>
        silently(
          () => true,
          () => right.forceRelease(key, ids),
        ),
    })),
  },
  {
    mistake: 'tells nobody about the release of a lock whose key it keeps',
    rejectedBy: "tells a waiter in the mode 'exclusive' to try when `keepFor` has passed",
    make: silentIn((right, silently) => ({
      release: (requests, tell) =>
        silently(
          () => requests.some(({ lease }) => lease.keepFor > 0),
          () => right.release(requests, tell),
        ),
    })),
  },
  {
    mistake: 'tells a waiter at once although the key is kept',
    rejectedBy: "tells a waiter in the mode 'exclusive' to try when `keepFor` has passed",
    make: memory((right) => ({
      listen: (waiter, onMessage) => right.listen(waiter, (_, turn) => onMessage(0, turn)),
    })),
  },
  {
    mistake: 'ignores the pause of a release',
    rejectedBy: "tells no waiter in the mode 'exclusive' to try before the pause",
    make: memory((right) => ({
      release: (requests, tell) => right.release(requests.map(withoutPause), tell),
    })),
  },
  {
    mistake: 'tells nobody about a lock that only other nodes store',
    rejectedBy:
      "tells the first waiter in the mode 'exclusive' about the release of a lock that only other nodes store",
    make: memory((right) => ({
      release: (requests, tell) =>
        right.release(
          requests.map((request) => ({ ...request, wasHeld: false })),
          tell,
        ),
    })),
  },
  {
    mistake: 'tells only the waiters of the first key about the release of several keys',
    rejectedBy:
      "tells a waiter in the mode 'exclusive' when it may try after a lock of several keys is released",
    make: silentIn((right, silently) => ({
      release: (requests, tell) => {
        for (const [index, request] of requests.entries()) {
          const others = request.lease.keys.slice(1);
          silently(
            (waiter) => waiter.keys.some((key) => others.includes(key)),
            () => right.release([request], () => tell(index, undefined)),
          );
        }
      },
    })),
  },
  {
    mistake: 'ignores the next waiter of the process',
    rejectedBy: 'lets the next waiter of the granted process take over the position, in front of',
    make: changing((position) => ({ ...position, next: undefined })),
  },
  {
    mistake: 'puts the next waiter of the process in front of all others',
    rejectedBy: 'lets the next waiter of the granted process take over the position, behind',
    make: changing((position) => ({ ...position, next: position.next && position.next + 60_000 })),
  },
  {
    mistake: 'puts a waiter that asks again at the end of the queue',
    rejectedBy: "keeps the position of a waiter in the mode 'exclusive' that asks again",
    make: changing((position) => ({ ...position, waited: 0 })),
  },
  {
    mistake: 'gives each call the place of one that came a minute ago',
    rejectedBy: "gives a later call no place of one of its process that gave up in the mode 'exclusive'",
    make: changing((position) => ({ ...position, waited: 60_000 })),
  },
  {
    mistake: 'keeps only ten waiters',
    rejectedBy: "tells each of 12 waiters in the mode 'exclusive'",
    make: memory((right) => ({
      acquire: answering(async (request, ordered) => {
        const [queue] = await right.waiting(request.lease.keys);
        const position = queue!.length < 10 ? request.position : undefined;
        return acquireOn(right, request.lease, { ...request, ordered, position });
      }),
    })),
  },
  {
    mistake: 'keeps a waiter in the queue of a key that it no longer waits for',
    rejectedBy: "keeps a waiter in the mode 'exclusive' only in the queue of the key that it waits for",
    make: memory((right) => {
      const copies = new Map<WaiterId, WaiterId[]>();
      const leave = (waiter: WaiterId): void => {
        for (const copy of copies.get(waiter) ?? []) void right.leave(copy);
      };
      return {
        acquire: answering(async (request, ordered) => {
          const { lease, position } = request;
          const reply = await acquireOn(right, lease, { ...request, ordered });
          if (!position || lease.keys.length === 1) return reply;
          const { waiter } = position;
          if (reply.granted) leave(waiter);
          else {
            const copy = copies.get(waiter) ?? waiter.keys.map((key) => ({ ...waiter, keys: [key] }));
            copies.set(waiter, copy);
            for (const each of copy)
              await acquireOn(right, withKeys(lease, each.keys, true), {
                ...{ ordered, limit: 1_000 },
                position: { ...position, waiter: each },
              });
          }
          return reply;
        }),
        leave: (waiter) => {
          leave(waiter);
          return right.leave(waiter);
        },
      };
    }),
  },
  {
    mistake: 'keeps a waiter that has left',
    rejectedBy: "removes a waiter in the mode 'exclusive' that leaves from the queues of all its keys",
    make: memory(() => ({ leave: () => Promise.resolve() })),
  },
  {
    mistake: 'holds callers back that came before the waiter',
    rejectedBy:
      "after `holdBack` for a waiter in the mode 'exclusive', the store refuses later callers in the mode 'shared'",
    make: memory((right) => ({ holdBack: (waiter, waited) => right.holdBack(waiter, waited + 60_000) })),
  },
  {
    mistake: 'holds callers back from keys that nobody holds',
    rejectedBy: 'holds readers back only from those keys of a waiting writer that were held',
    make: memory((right) => ({
      holdBack: async (waiter, waited) => {
        for (const key of waiter.keys) await right.holdBack({ ...waiter, keys: [key] }, waited);
        return true;
      },
    })),
  },
  {
    mistake: 'removes the mark of a key when the waiter finds another key held',
    rejectedBy: 'holds readers back only from those keys of a waiting writer that were held',
    make: memory((right) => ({
      holdBack: async (waiter, waited) => {
        await right.letPass(waiter);
        return right.holdBack(waiter, waited);
      },
    })),
  },
  {
    mistake: 'holds callers back after `letPass`',
    rejectedBy:
      "after `holdBack` for a waiter in the mode 'exclusive', the store refuses later callers in the mode 'shared'",
    make: memory((): Partial<StarvationGuard> => ({ letPass: () => Promise.resolve() })),
  },
];

/** Stores that differ from a right store in one rule each. */
const WRONG_EXCHANGES: readonly WrongStore[] = [
  {
    mistake: 'sees in one step who holds the key, and gives the place away in another',
    rejectedBy: 'gives the place of a lease to one of 20 simultaneous requests',
    make: memory((right) => ({
      exchange: async (request) => {
        const isThere = (await holdersOf(right, request)).some((id) => request.replaces.includes(id));
        await nextTurn();
        return isThere && right.exchange({ ...request, replaces: await holdersOf(right, request) });
      },
    })),
  },
  {
    mistake: 'gives the place away key by key',
    rejectedBy: 'puts no lease in the place of one that does not hold all its keys',
    make: memory((right) => ({
      exchange: async (request) => {
        const keys = request.lease.keys.map((key) =>
          right.exchange({ ...request, lease: withKeys(request.lease, [key]) }),
        );
        return (await Promise.all(keys)).every(Boolean);
      },
    })),
  },
  {
    mistake: 'gives a place away after the time limit of the request',
    rejectedBy: 'gives no place away when the time limit of the request has passed',
    make: memory((right) => ({ exchange: (request) => right.exchange({ ...request, limit: 10_000 }) })),
  },
];

export const WRONG_STORES: readonly WrongStore[] = [
  ...WRONG_EXCLUSION,
  ...WRONG_HEALING,
  ...WRONG_ENDS,
  ...WRONG_TICKS,
  ...WRONG_ANSWERS,
  ...WRONG_QUEUES,
  ...WRONG_EXCHANGES,
];

/** Makes a store in memory with other methods in place of some. */
function memory(methods: (right: MemoryStore) => Partial<Store>): () => Store {
  return () => {
    const right = new MemoryStore();
    const wrong = methods(right);
    return new Proxy<Store>(right, {
      get: (_, name) => {
        const value = wrong[name as keyof Store] ?? right[name as keyof MemoryStore];
        return typeof value === 'function' ? value.bind(right) : value;
      },
    });
  };
}

function table(Wrong: new () => TableStore): () => Store {
  return () => new Wrong();
}

/** Makes a store in memory whose waiters get no messages while `silently` runs its second argument. */
function silentIn(
  methods: (
    right: MemoryStore,
    silently: <Result>(isSilent: (waiter: WaiterId) => boolean, run: () => Result) => Result,
  ) => Partial<Store>,
): () => Store {
  return memory((right) => {
    let isSilent = (_waiter: WaiterId): boolean => false;
    const silently = <Result>(silent: (waiter: WaiterId) => boolean, run: () => Result): Result => {
      isSilent = silent;
      try {
        return run();
      } finally {
        isSilent = () => false;
      }
    };
    return {
      ...methods(right, silently),
      listen: (waiter, onMessage) =>
        right.listen(waiter, (after, turn) => {
          if (!isSilent(waiter)) onMessage(after, turn);
        }),
    };
  });
}

type Position = NonNullable<AcquireRequest['position']>;

/** Makes a store in memory that sees the positions of its waiters wrongly. */
function changing(change: (position: Position) => Position): () => Store {
  return memory((right) => ({
    acquire: (requests, ordered, tell) =>
      right.acquire(
        requests.map((request) => ({ ...request, position: request.position && change(request.position) })),
        ordered,
        tell,
      ),
  }));
}

/** An `acquire` that answers each request by itself. */
function answering(
  answer: (request: AcquireRequest, ordered: boolean) => Promise<AcquireReply>,
): Store['acquire'] {
  return (requests, ordered, tell) => tellEach(requests, tell, (request) => answer(request, ordered));
}

/** Locks keys one after the other, and frees them when it does not get all of them. */
async function oneByOne(right: MemoryStore, { lease, since }: AcquireRequest): Promise<AcquireReply> {
  const parts: Lease[] = [];
  let reply: AcquireReply | undefined;
  for (const key of lease.keys) {
    const part = withKeys(lease, [key]);
    reply = await acquireOn(right, part, { since });
    if (!reply.granted) break;
    parts.push(part);
    await nextTurn();
  }
  if (!reply?.granted) for (const part of parts) await releaseOn(right, part);
  return reply!;
}

/** The same lease with other keys, or another lease like it. */
function withKeys(
  { owner, ttl, tick, kind, id, slots }: Lease,
  keys: readonly string[],
  isNew = false,
): Lease {
  return Object.assign(new Lease(keys, owner, ttl, tick, kind), { slots, ...(isNew ? {} : { id }) });
}

function withoutPause({ lease }: ReleaseRequest): ReleaseRequest {
  return { lease, pause: 0 };
}

/** Removes the holders of the keys, except those in `keep`. */
async function removeHolders(
  right: MemoryStore,
  keys: readonly string[],
  keep?: HeldKey,
): Promise<readonly string[]> {
  const kept = new Set(keep?.holders.map(({ id }) => id));
  const removed: string[] = [];
  for (const key of keys) {
    const [state] = (await right.read([key])) as readonly (HeldKey | undefined)[];
    const ids = (state?.holders ?? []).map(({ id }) => id).filter((id) => !kept.has(id));
    removed.push(...(await right.forceRelease(key, ids)));
  }
  return removed;
}

function holds({ id, ends, released }: Row, by: string, now: number): boolean {
  return id === by && ends > now && !released;
}

/** The ids of the holders of the first key. */
async function holdersOf(right: MemoryStore, { lease }: ExchangeRequest): Promise<string[]> {
  const [state] = (await right.read(lease.keys)) as readonly (HeldKey | undefined)[];
  return (state?.holders ?? []).map(({ id }) => id);
}

/** A table in memory whose new rows have a token ahead of the clock. */
function aheadTable(name = (key: string): string => key): Table {
  const rows = new Map<string, Row>();
  return {
    open: () => Promise.resolve(),
    change: async (keys, change) => {
      const now = performance.timeOrigin + performance.now();
      const found = keys.map((key) => {
        const row = rows.get(name(key)) ?? { ...FREE, token: tokenAt(now + 3_600_000), ran: {} };
        rows.set(name(key), row);
        return row;
      });
      return change(found as [Row, ...Row[]], now);
    },
    keys: async (prefix) => [...rows.keys()].filter((key) => key.startsWith(prefix)),
    close: () => Promise.resolve(),
  };
}
