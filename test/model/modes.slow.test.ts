import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { STEPS_PER_SECOND } from '../../lib/core/fencing-token.js';
import { Lease } from '../../lib/core/lease.js';
import type { LockKind, LockMode } from '../../lib/core/lock-mode.js';
import type { AcquireReply, KeyState, Store, Tell } from '../../lib/core/ports.js';
import { LINGER_MS } from '../../lib/core/store-times.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { openClient } from '../../lib/stores/redis/connection/connection.js';
import { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { newFleet } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import {
  type Claimant,
  type Granted,
  ManyHolders,
  type ModeRules,
  RIGHT_MODES,
  type Wanted,
} from './many-holders.js';
import { randomFrom } from './random.js';

// These tests send a store long random sequences of messages in all modes. The keys change from one mode to another. The
// store must give the answers of `many-holders.ts`, and show the same holders after each message.

/** Number of sequences. */
const ROUNDS = process.env.MODEL === 'long' ? 30 : 1;
const MEMORY_MESSAGES = 8_000;
const REDIS_MESSAGES = 1_500;
/**
 * Number of messages within which each planted error in the rules must show. Most errors show within a few hundred
 * messages.
 */
const MOST_MESSAGES = 8_000;
const LONG_MS = 60_000;
/**
 * If a hold ends within this time, the test waits until the end has passed. Otherwise the store could execute the next
 * message before or after the end, and the test could not know which.
 */
const CLOSE = steps(4);
const RULES: ModeRules = { ...RIGHT_MODES, linger: steps(LINGER_MS) };

/** The mode of each lease, its keys (one for each letter), and its number of permits. */
const KINDS: readonly (readonly [LockMode, string, number])[] = [
  ['exclusive', 'a', 0],
  ['exclusive', 'ab', 0],
  ['shared', 'a', 0],
  ['shared', 'a', 0],
  ['shared', 'b', 0],
  ['shared', 'ab', 0],
  ['permits', 'a', 2],
  ['permits', 'a', 3],
  ['permits', 'a', 3],
  ['permits', 'a', 3],
  ['permits', 'b', 3],
  ['permits', 'ab', 3],
];

function steps(milliseconds: number): number {
  return (milliseconds * STEPS_PER_SECOND) / 1_000;
}

type Random = (count: number) => number;

/** The store that receives the messages, and its clock. */
interface Node {
  readonly store: Store;
  readonly modes: readonly LockMode[];
  readonly shortMs: number;
  readonly keepMs: number;
  clock(): Promise<number>;
  /** Lets some time pass. Resolves to true if the store has forgotten everything. */
  pass(random: Random): Promise<boolean>;
}

/** A message, and the expected answer. */
interface Message {
  readonly name: string;
  readonly send: () => Promise<readonly unknown[]>;
  readonly rule: (state: ManyHolders, now: number) => readonly unknown[];
}

async function answersTo<Reply>(
  count: number,
  ask: (tell: Tell<Reply>) => void,
): Promise<readonly (Reply | Error)[]> {
  const answers: (Reply | Error)[] = [];
  await new Promise<void>((resolve) => {
    let missing = count;
    ask((index, reply) => {
      answers[index] = reply;
      if (--missing === 0) resolve();
    });
  });
  return answers;
}

/** Returns the grant in a reply, or `undefined` for a refusal or an expected error: the model treats both alike. */
function grantOf(reply: AcquireReply | Error): Granted | undefined {
  if (!(reply instanceof Error))
    return reply.granted ? { token: reply.token, slots: reply.slots ?? [] } : undefined;
  if (reply.message.includes('this lock was stored before')) return undefined;
  throw reply;
}

class Conversation {
  readonly #random: Random;
  #keys: Readonly<Record<string, string>> = {};
  #leases: Lease[] = [];
  /** Leases that newer leases have replaced. Their extensions and releases may still arrive. */
  #late: Lease[] = [];
  readonly #granted = new Set<Lease>();
  #state = new ManyHolders(RULES);
  /** The time on the node's clock just before the test chose the current message. */
  #now = 0;
  /** Uncertainty of the holders' ends: the duration of the last exchange. */
  #slack = 0;
  /** Kinds of events so far; a test checks that each kind has occurred. */
  readonly seen = new Set<string>();

  constructor(
    private readonly node: Node,
    private readonly rules: ModeRules,
    private readonly seed: number,
  ) {
    this.#random = randomFrom(seed);
  }

  /** Sends messages. Resolves to the first answer or state that differs from the rules, or to `undefined` if none does. */
  async run(messages: number): Promise<unknown> {
    this.#begin();
    for (let at = 0; at < messages; at++) {
      if (this.#random(12) === 0 && (await this.node.pass(this.#random))) this.#begin();
      await this.#waitForEnds();
      this.#now = await this.node.clock();
      const difference = await this.#exchange(this.#message());
      if (difference) return { seed: this.seed, at, ...difference };
    }
    return undefined;
  }

  /** Begins with new keys and new leases. */
  #begin(): void {
    const run = this.#random(2 ** 31);
    this.#keys = { a: `{${run}}:a`, b: `{${run}}:b` };
    this.#state = new ManyHolders(this.rules);
    this.#late = [];
    this.#leases = KINDS.filter(([mode]) => this.node.modes.includes(mode)).map((_, index) =>
      this.#newLease(index),
    );
  }

  #newLease(index: number): Lease {
    const kinds = KINDS.filter(([mode]) => this.node.modes.includes(mode));
    const [mode, keys, permits] = kinds[index]!;
    const kind: LockKind = mode === 'permits' ? { mode, permits } : { mode };
    const ttl = this.#random(3) === 0 ? this.node.shortMs : LONG_MS;
    return new Lease(
      [...keys].map((key) => this.#keys[key]!),
      'model',
      ttl,
      undefined,
      kind,
    );
  }

  /** Sends a message, and compares the answer with the rules at each time at which the store may have executed it. */
  async #exchange({ name, send, rule }: Message): Promise<object | undefined> {
    const before = this.#state;
    // The message was chosen for the holders at `#now`. A later time would overlook a holder that ends in between.
    const from = this.#now;
    const answers = await send();
    const found = await this.node.store.read!(Object.values(this.#keys));
    const to = await this.node.clock();
    if (from !== to && this.#endsBetween(from - CLOSE, to + CLOSE)) {
      this.#begin();
      return undefined;
    }
    const tokens = answers.flatMap((answer) => (answer as Granted | undefined)?.token ?? []);
    for (const time of [from, to, ...tokens]) {
      if (time < from || time > to) continue;
      const after = before.copy();
      const expected = rule(after, time);
      if (!isSame(answers, expected) || !this.#shows(found, after, to, to - from)) continue;
      this.#state = after;
      if (from !== to) this.#correct(found, to, to - from);
      const [word] = name.split(' ', 1);
      for (const answer of answers) this.seen.add(`${word}: ${answer === undefined ? 'no' : 'yes'}`);
      for (const key of Object.values(this.#keys)) {
        const { size } = after.holders(key, time);
        if (size > 0) this.seen.add(`${size > 1 ? 'several' : 'one'}: ${after.mode(key).mode}`);
      }
      return undefined;
    }
    const after = before.copy();
    const expected = rule(after, from);
    this.#state = after;
    if (from !== to && this.#endsBetween(from - CLOSE, to + CLOSE)) {
      this.#begin();
      return undefined;
    }
    return { name, answers, expected, found, before, after, from, to };
  }

  #correct(found: readonly KeyState[], now: number, slack: number): void {
    this.#slack = slack;
    for (const [index, key] of Object.values(this.#keys).entries()) {
      const shown = found[index];
      if (!shown || shown instanceof Error) continue;
      for (const { id, remaining } of shown.holders) this.#state.correctEnd(key, id, now + steps(remaining));
    }
  }

  #endsBetween(from: number, to: number): boolean {
    return this.#state.ends().some((end) => end > from - this.#slack && end < to + this.#slack);
  }

  async #waitForEnds(): Promise<void> {
    for (;;) {
      const now = await this.node.clock();
      if (now === (await this.node.clock()) || !this.#endsBetween(now - CLOSE, now + 3 * CLOSE)) return;
      await sleep(2);
    }
  }

  /** Checks that the store shows the expected holders, with their ends, tokens and slots. */
  #shows(found: readonly KeyState[], state: ManyHolders, now: number, tolerance: number): boolean {
    return Object.values(this.#keys).every((key, index) => {
      const shown = found[index];
      if (shown instanceof Error) return false;
      const holders = state.holders(key, now);
      if (!shown || holders.size === 0) return !shown && holders.size === 0;
      const { mode, permits } = state.mode(key);
      if (shown.mode !== mode || (shown.permits ?? 0) !== permits) return false;
      return (
        shown.holders.length === holders.size &&
        shown.holders.every(({ id, fencingToken, slot, remaining }) => {
          const held = holders.get(id);
          if (!held || held.token !== fencingToken || held.slot !== slot) return false;
          return Math.abs(held.end - now - steps(remaining)) <= tolerance + this.#slack + CLOSE;
        })
      );
    });
  }

  #message(): Message {
    const kind = this.#random(20);
    if (kind < 9) return this.#acquisition();
    const lease = this.#oneToChange();
    const claim = claimOf(lease);
    const { store } = this.node;
    const { slots } = lease;
    const about = `${lease.kind.mode} ${claim.id.slice(0, 6)} of ${claim.keys.length}`;
    if (kind < 12) {
      const ttl = this.#random(2) === 0 ? this.node.shortMs : LONG_MS;
      return {
        name: `extend ${about} by ${ttl} in ${String(slots)}`,
        send: async () => {
          const [extended] = await answersTo<boolean>(1, (tell) => store.extend([lease], ttl, tell));
          return [extended || undefined];
        },
        rule: (state, now) => [state.extend(claim, now, steps(ttl), slots) || undefined],
      };
    }
    if (kind < 14) {
      const token = this.#tokenToRaise(lease);
      return {
        name: `raise ${about} to ${token} in ${String(slots)}`,
        send: async () => [(await store.raise!(lease, token)) || undefined],
        rule: (state, now) => [state.raise(claim, now, token, slots) || undefined],
      };
    }
    if (kind < 15) {
      const [key] = claim.keys as [string];
      // The ids may include lapsed leases, which hold nothing.
      const named = [lease, this.#oneToChange()].filter(
        (one) => !this.#granted.has(one) || this.#isThere(one),
      );
      const ids = [...new Set(named.map(({ id }) => id))];
      return {
        name: `end ${about}`,
        send: async () => [(await store.forceRelease!(key, ids)).toSorted().join() || undefined],
        rule: (state, now) => [state.forceRelease(key, ids, now).toSorted().join() || undefined],
      };
    }
    let keep = 0;
    return {
      name: `release ${about}`,
      send: () => {
        keep = steps(lease.keepFor);
        return answersTo<undefined>(1, (tell) => store.release([{ lease, pause: 0 }], tell));
      },
      rule: (state, now) => {
        state.release(claim, now, keep);
        return [undefined];
      },
    };
  }

  #acquisition(): Message {
    const { node } = this;
    const index = this.#random(this.#leases.length);
    const lease = this.#oneToAsk(index);
    const claim = claimOf(lease);
    const heals = lease.kind.mode !== 'permits' && this.#random(4) === 0;
    const isProposed = heals || this.#random(2) === 0;
    const proposal = isProposed ? Math.floor(steps(Date.now() + this.#random(150) - 100)) : 0;
    const wish = this.#wish(lease);
    const wanted: Wanted = { ttl: steps(lease.ttl), proposal, wish, heals };
    let heard: Granted | undefined;
    return {
      name: `${heals ? 'heal' : 'acquire'} ${lease.kind.mode} ${claim.id.slice(0, 6)} of ${claim.keys.length}, ${JSON.stringify(wish)}`,
      send: async () => {
        const terms = { since: Date.now(), limit: LONG_MS, guard: 0, position: undefined };
        const requests = [{ lease, proposal, wish, heals, ...terms }];
        const [reply] = await answersTo<AcquireReply>(1, (tell) => node.store.acquire(requests, false, tell));
        const granted = grantOf(reply!);
        if (granted) this.#heard(lease, granted);
        heard = granted;
        return [granted];
      },
      rule: (state, now) => {
        const isNew = !claim.keys.some((key) => state.holders(key, now).has(claim.id));
        // The store may choose any free slot, and may not have noticed yet that another slot has lapsed.
        const chosen = heard && heard.slots.length > 0 && isNew && !wish?.exactly ? heard.slots : undefined;
        const taken = chosen && { ...wanted, wish: { slots: chosen.map(Number), exactly: true } };
        const granted = state.acquire(claim, now, taken ?? wanted);
        return [granted && { ...granted, slots: granted.slots.filter((slot) => slot !== undefined) }];
      },
    };
  }

  /** Does what a client does after a grant. Sometimes it takes another slot, as if the other nodes had granted that. */
  #heard(lease: Lease, { slots }: Granted): void {
    const isNew = !this.#granted.has(lease);
    this.#granted.add(lease);
    if (lease.kind.mode === 'permits' && this.#random(3) > 0) {
      const { permits } = lease.kind;
      const by = this.#random(8) === 0 ? 1 : 0;
      lease.slots = slots.map((slot) => (slot! + by) % permits);
    }
    if (isNew && lease.kind.mode !== 'shared' && lease.ttl === LONG_MS && this.#random(4) === 0)
      lease.acquired(performance.now(), this.node.keepMs);
  }

  #wish({ kind, keys }: Lease): Wanted['wish'] {
    if (kind.mode !== 'permits' || this.#random(3) === 0) return undefined;
    return { slots: keys.map(() => this.#random(kind.permits)), exactly: this.#random(4) === 0 };
  }

  /**
   * Returns the lease for a request. A new lease replaces a granted lease that holds nothing any more, because not this
   * model but `record.ts` covers a second request for such a lease.
   */
  #oneToAsk(index: number): Lease {
    const lease = this.#leases[index]!;
    const isHeld = lease.keys.some(
      (key) => this.#state.holders(key, this.#now).get(lease.id)?.kept === false,
    );
    if (!this.#granted.has(lease) || isHeld) return lease;
    this.#late = [lease, ...this.#late].slice(0, 8);
    return (this.#leases[index] = this.#newLease(index));
  }

  /** Returns a lease to extend, raise or release, which mostly holds a key. */
  #oneToChange(): Lease {
    const holds = this.#leases.filter((lease) => this.#isThere(lease));
    const some = this.#random(5) > 0 && holds.length > 0 ? holds : [...this.#leases, ...this.#late];
    return some[this.#random(some.length)]!;
  }

  /** Returns true if the lease holds a key, or keeps it after its release. */
  #isThere({ id, keys }: Lease): boolean {
    return keys.some((key) => this.#state.holders(key, this.#now).has(id));
  }

  #tokenToRaise({ id, keys: [key = ''] }: Lease): number {
    const token = this.#state.holders(key, this.#now).get(id)?.token;
    if (token !== undefined && this.#random(2) === 0) return token + this.#random(6) - 2;
    return Math.floor(steps(Date.now() + this.#random(100)));
  }
}

function claimOf({ id, keys, kind }: Lease): Claimant {
  return { id, keys, mode: kind.mode, permits: kind.mode === 'permits' ? kind.permits : 0 };
}

function isSame(answers: readonly unknown[], expected: readonly unknown[]): boolean {
  return JSON.stringify(answers) === JSON.stringify(expected);
}

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());
afterEach(() => {
  jest.useRealTimers();
});

/** Fake time advances in ticks. A tick is a whole number of steps, the unit of tokens. */
const TICK_MS = 125;

function memoryNode(): Promise<Node> {
  jest.useFakeTimers({ now: 14_000_000_000 * TICK_MS });
  const store = new MemoryStore();
  return Promise.resolve({
    store,
    modes: store.modes,
    shortMs: 2 * TICK_MS,
    keepMs: 2 * TICK_MS,
    clock: () => Promise.resolve(steps(Date.now())),
    pass: (random) => {
      const forgets = random(8) === 0;
      jest.advanceTimersByTime(forgets ? LONG_MS + 2 * LINGER_MS : TICK_MS * (1 + random(3)));
      return Promise.resolve(forgets);
    },
  });
}

async function redisNode(): Promise<Node> {
  const client = server.client();
  // A node has a marker only if it is one of several nodes.
  const store = new RedisStore(openClient(server.url), true, newFleet(false, true));
  await store.connect();
  return {
    store,
    modes: store.modes,
    shortMs: 40,
    keepMs: 40,
    clock: async () => {
      const [seconds, micros] = await client.time();
      return Math.floor(steps(Number(seconds) * 1_000 + Number(micros) / 1_000));
    },
    pass: async (random) => {
      await sleep(1 + random(30));
      return false;
    },
  };
}

/** Events that a sequence must contain, in any mode. */
const SEEN = ['acquire', 'heal', 'extend', 'raise', 'end'].flatMap((word) => [`${word}: yes`, `${word}: no`]);
const SEEN_IN: Readonly<Record<LockMode, readonly string[]>> = {
  exclusive: ['one: exclusive'],
  shared: ['one: shared', 'several: shared'],
  permits: ['one: permits', 'several: permits'],
};

async function firstDifference(
  open: () => Promise<Node>,
  rules: ModeRules,
  messages: number,
): Promise<{
  readonly difference: unknown;
  readonly seen: ReadonlySet<string>;
  readonly expected: string[];
}> {
  const node = await open();
  const conversation = new Conversation(node, rules, randomInt(2 ** 31));
  const difference = await conversation.run(messages);
  await node.store.close();
  const expected = [...SEEN, ...node.modes.flatMap((mode) => SEEN_IN[mode])];
  return { difference, seen: conversation.seen, expected };
}

/** Errors in the rules, each with the modes in which it makes a difference. */
const PLANTED: readonly [string, Partial<ModeRules>, readonly LockMode[]][] = [
  ['a lock is granted beside a lock of another mode', { excludes: false }, ['shared', 'permits']],
  ['a reader that joins other readers gets a larger token', { joinsByToken: false }, ['shared']],
  ['a reader that heals beside other readers gets their token', { healsByToken: false }, ['shared']],
  ['an extension extends all holders', { ownEnds: false }, ['shared']],
  ['all slots share one series of tokens', { rows: false }, ['permits']],
  ['a new slot gets a token below earlier tokens', { floor: false }, ['permits']],
  ['a lease keeps its old slot when it asks for one specific other slot', { givesUp: false }, ['permits']],
  ['a node extends a lease although the extension names a different slot', { knowsSlot: false }, ['permits']],
  [
    'a node accepts a raise to a token below the token of the lease',
    { refusesLowerRaise: false },
    ['shared'],
  ],
  ['a release frees all holders', { releasesOwn: false }, ['shared']],
];

describe.each([
  ['memory', memoryNode, MEMORY_MESSAGES, ['exclusive', 'shared', 'permits']],
  ['Redis, through its Lua scripts', redisNode, REDIS_MESSAGES, ['exclusive', 'shared', 'permits']],
] as const)('a node in %s', (_kind, open, messages, modes) => {
  test('the node follows the rules in each lock mode, with messages in any order', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const { difference, seen, expected } = await firstDifference(open, RULES, messages);
      expect(difference).toBeUndefined();
      expect([...seen]).toEqual(expect.arrayContaining(expected));
    }
  });

  // Wrong rules show in the comparison with any node, and a comparison with Redis takes long.
  const compared = open === memoryNode || process.env.MODEL === 'long' ? PLANTED : [];
  const planted = compared.filter(([, , needed]) =>
    needed.every((mode) => modes.some((one) => one === mode)),
  );
  for (const [what, plant] of planted) {
    test(`the comparison with a node detects wrong rules in which ${what}`, async () => {
      let difference: unknown;
      // A conversation is random, and may never come to what the wrong rules change.
      for (let tries = 0; tries < 8 && difference === undefined; tries++)
        ({ difference } = await firstDifference(open, { ...RULES, ...plant }, MOST_MESSAGES));
      expect(difference).toBeDefined();
    });
  }
});
