import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { GuardedNodeError, NoTimeError } from '../../lib/core/errors.js';
import { LEAD_MS, STEPS_PER_SECOND } from '../../lib/core/fencing-token.js';
import { Lease } from '../../lib/core/lease.js';
import type { AcquireReply, Tell } from '../../lib/core/ports.js';
import { LINGER_MS } from '../../lib/core/store-times.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { openClient } from '../../lib/stores/redis/connection/connection.js';
import { parseRecord } from '../../lib/stores/redis/record.js';
import { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { newFleet } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { acquireAll, type Claim, extendAll, raiseAll, type Records, releaseAll } from './many-records.js';
import { randomFrom } from './random.js';
import { type RecordStore, SimulatedStore } from './simulated-store.js';
import { type LockRecord, recordAt, type RecordRules, RIGHT } from './record.js';

// The other tests of this folder check the protocol with model nodes, which follow the rules in `record.ts`. These tests
// check that the real nodes follow the same rules. They send the nodes long random sequences of messages, some of them
// late or repeated, and compare each answer with the answer that the rules give.
//
// Times are in steps, the unit of tokens, as in the rules. A record's end is exact to a millisecond, which is about a
// thousand steps.

/** Number of sequences. */
const ROUNDS = process.env.MODEL === 'long' ? 30 : 1;
/** Number of messages within which every outcome of `SEEN` occurs. */
const REDIS_MESSAGES = 1_200;
const MEMORY_MESSAGES = 6_000;
/**
 * Number of messages within which each planted error in the rules must show. Most errors show within a hundred messages,
 * and an error of the marker once did not show within five thousand.
 */
const MOST_MESSAGES = 20_000;
const LINGER = steps(LINGER_MS);
const GUARD_MS = 30;
const LONG_MS = 60_000;
/**
 * If a lock ends within this time, the test waits until the end has passed. It does not judge a message during which a
 * lock lapsed, because the node may have executed the message before or after the lapse.
 */
const CLOSE = steps(4);

const RULES: RecordRules = { ...RIGHT, linger: LINGER, lead: steps(LEAD_MS), guard: steps(GUARD_MS) };
/** The rules of a store in memory: one node, which needs no marker, and no late messages. */
const MEMORY_RULES: RecordRules = {
  ...RULES,
  lead: Infinity,
  guard: 0,
  deadline: false,
  marker: 'nothing',
  aboveMarker: 'never',
};

/** Possible keys of locks. */
const KEYS = ['a', 'b'];
const LOCKS = [['a'], ['a'], ['b'], ['a', 'b'], ['a', 'b']];

function steps(milliseconds: number): number {
  return (milliseconds * STEPS_PER_SECOND) / 1_000;
}

/** Gives each lease a number, as in the rules. */
class Claims {
  readonly #numbers = new Map<string, number>();

  of({ id, keys }: Lease): Claim {
    this.#numbers.set(id, this.#numbers.get(id) ?? this.#numbers.size);
    return { id: this.numberOf(id), keys };
  }

  numberOf(id: string): number {
    return this.#numbers.get(id) ?? -1;
  }
}

/** The store that receives the messages, and its clock. */
interface Node {
  readonly store: RecordStore;
  readonly shortMs: number;
  /** Largest lead of proposed tokens over the clock, in milliseconds. */
  readonly aheadMs: number;
  readonly guardMs: number;
  /** True if a message can arrive after its deadline. */
  readonly late: boolean;
  clock(): Promise<number>;
  /** Resolves to the stored records, or to `undefined` if only answers are visible. */
  read(claims: Claims): Promise<Records | undefined>;
  /** Lets some time pass. `forgets` tells whether the store has forgotten every record. */
  pass(random: (count: number) => number): Promise<{ readonly forgets: boolean }>;
  /** Changes stored records by hand. */
  tamper?(random: (count: number) => number): Promise<void>;
}

/** A message, and the expected answer. */
interface Message {
  readonly name: string;
  readonly send: () => Promise<readonly unknown[]>;
  readonly rule: (before: Records, now: number) => { after: Records; answers: readonly unknown[] };
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

/** Returns the token of a grant, or `undefined` for a refusal. Throws errors that are not in the rules. */
function tokenOf(reply: AcquireReply | Error): number | undefined {
  if (!(reply instanceof Error)) return reply.granted ? reply.token : undefined;
  const isRule = reply instanceof NoTimeError || reply instanceof GuardedNodeError;
  if (isRule || reply.message.includes('this lock was stored before')) return undefined;
  throw reply;
}

class Conversation {
  readonly #claims = new Claims();
  readonly #leases: Lease[] = [];
  readonly #kept = new Set<Lease>();
  readonly #random: (count: number) => number;
  #state: Records = { records: new Map(), marker: undefined, born: undefined };
  /** Kinds of events so far; a test checks that each kind has occurred. */
  readonly seen = new Set<string>();

  constructor(
    private readonly node: Node,
    private readonly rules: RecordRules,
    private readonly seed: number,
  ) {
    this.#random = randomFrom(seed);
  }

  /** Sends messages. Resolves to the first difference, or to `undefined` without one. */
  async run(messages: number): Promise<unknown> {
    this.#renewLeases();
    this.#state = (await this.node.read(this.#claims)) ?? this.#state;
    for (let at = 0; at < messages; at++) {
      const kind = this.#random(100);
      if (kind < 6) this.#renewLease(this.#random(LOCKS.length));
      else if (kind < 12) {
        const { forgets } = await this.node.pass(this.#random);
        // New leases replace the earlier ones, whose deadlines have passed long ago.
        if (forgets) this.#renewLeases();
      } else if (kind < 22 && this.node.tamper) {
        await this.node.tamper(this.#random);
        this.#state = (await this.node.read(this.#claims)) ?? this.#state;
      } else {
        const difference = await this.#exchange(this.#message());
        if (difference) return { seed: this.seed, at, ...difference };
      }
    }
    return undefined;
  }

  #renewLeases(): void {
    LOCKS.forEach((_, index) => this.#renewLease(index));
  }

  #renewLease(index: number): void {
    const ttl = this.#random(2) === 0 ? this.node.shortMs : LONG_MS;
    this.#leases[index] = new Lease(LOCKS[index] ?? [], 'model', ttl);
  }

  /** Sends a message, and compares the answer with the rules at each time at which the store may have executed it. */
  async #exchange({ name, send, rule }: Message): Promise<object | undefined> {
    const before = this.#state;
    await this.#waitForChanges();
    const from = await this.node.clock();
    const answers = await send();
    const stored = await this.node.read(this.#claims);
    const to = await this.node.clock();
    if (this.#changesBetween(from - CLOSE, to + CLOSE, from !== to)) {
      this.#state = stored ?? before;
      return undefined;
    }
    const tokens = answers.filter((answer) => typeof answer === 'number');
    const times = [from, to, ...tokens, ...tokens.map((token) => token - this.rules.lead)];
    for (const time of times) {
      if (time < from || time > to) continue;
      const { after, answers: expected } = rule(before, time);
      if (!sameAnswers(answers, expected)) continue;
      if (stored && !sameRecords(stored, after, time, to - from + CLOSE)) continue;
      this.#note(name, answers, before, after);
      // The stored end differs from the expected one by a part of a millisecond.
      this.#state = stored ?? after;
      return undefined;
    }
    const expected = rule(before, from);
    return { name, answers, expected: expected.answers, before, stored, after: expected.after, from, to };
  }

  #note(name: string, answers: readonly unknown[], before: Records, after: Records): void {
    const [word] = name.split(' ', 1);
    for (const answer of answers) this.seen.add(`${word}: ${answer === undefined ? 'no' : 'yes'}`);
    const isGranted = answers.some((answer) => typeof answer === 'number');
    if (isGranted && before.records === after.records) this.seen.add('acquire: again');
    if (before.marker !== after.marker) this.seen.add(`${word}: marker`);
    for (const { state } of after.records.values()) this.seen.add(state);
  }

  /** Returns the times at which the answers change without a message. */
  #changes(): number[] {
    const { records, born } = this.#state;
    const ends = [...records.values()].flatMap(({ end }) => [end - this.rules.linger, end]);
    return born === undefined ? ends : [...ends, born + steps(GUARD_MS)];
  }

  #changesBetween(from: number, to: number, timeGoesOn: boolean): boolean {
    return timeGoesOn && this.#changes().some((time) => time > from && time < to);
  }

  async #waitForChanges(): Promise<void> {
    for (;;) {
      const now = await this.node.clock();
      if (!this.node.tamper || !this.#changesBetween(now - CLOSE, now + 2 * CLOSE, true)) return;
      await sleep(2);
    }
  }

  #message(): Message {
    const { store } = this.node;
    const kind = this.#random(10);
    if (kind < 5) return this.#acquisition();
    if (kind < 8) {
      const lease = this.#oneToRaise();
      const claim = this.#claims.of(lease);
      const token = this.#tokenToRaise(lease);
      return {
        name: `raise ${claim.id} to ${token}`,
        send: async () => [(await store.raise(lease, token)) || undefined],
        rule: (before, now) => {
          const { after, answers } = raiseAll(before, claim, now, token, this.rules);
          const isAhead = answers[0] === true && token > now + this.rules.lead;
          return { after: isAhead ? this.#met(after, now) : after, answers };
        },
      };
    }
    const leases = this.#some(() => true);
    const claims = leases.map((one) => this.#claims.of(one));
    const names = claims.map(({ id }) => id).join(', ');
    if (kind < 9) {
      const ttl = this.#random(2) === 0 ? this.node.shortMs : LONG_MS;
      return {
        name: `extend ${names} by ${ttl}`,
        send: async () => {
          const answers = await answersTo<boolean>(leases.length, (tell) => store.extend(leases, ttl, tell));
          return answers.map((answer) => answer || undefined);
        },
        rule: (before, now) => extendAll(before, claims, now, steps(ttl), this.rules),
      };
    }
    let kept: (Claim & { readonly keep: number })[] = [];
    return {
      name: `release ${names}`,
      send: () => {
        kept = leases.map((one) => ({ ...this.#claims.of(one), keep: steps(one.keepFor) }));
        const requests = leases.map((one) => ({ lease: one, pause: 0 }));
        return answersTo<undefined>(leases.length, (tell) => store.release(requests, tell));
      },
      rule: (before, now) => ({
        after: releaseAll(before, kept, now, this.rules),
        answers: leases.map(() => undefined),
      }),
    };
  }

  /** Acquires one to three leases in one command. All have the same ttl and the same number of keys. */
  #acquisition(): Message {
    const { store, late, guardMs, aheadMs } = this.node;
    const [first] = this.#some(() => true) as [Lease];
    const leases = this.#some(({ ttl, keys }) => ttl === first.ttl && keys.length === first.keys.length);
    const claims = leases.map((one) => this.#claims.of(one));
    const isLate = late && this.#random(5) === 0;
    const ahead = this.#random(2) === 0 ? undefined : this.#random(aheadMs) - 100;
    const proposal = ahead === undefined ? 0 : Math.floor(steps(Date.now() + ahead));
    return {
      name: `acquire ${claims.map(({ id }) => id).join(', ')}${isLate ? ' too late' : ''}, ${proposal}`,
      send: async () => {
        const requests = leases.map((lease) => ({
          lease,
          since: Date.now(),
          limit: isLate ? -1_000 : LONG_MS,
          guard: guardMs,
          proposal,
          position: undefined,
        }));
        const answers = await answersTo<AcquireReply>(leases.length, (tell) =>
          store.acquire(requests, false, tell),
        );
        const tokens = answers.map(tokenOf);
        leases.forEach((lease, index) => {
          if (tokens[index] === undefined || this.#kept.has(lease) || this.#random(3) > 0) return;
          lease.acquired(performance.now(), LONG_MS);
          this.#kept.add(lease);
        });
        return tokens;
      },
      rule: (before, now) => {
        const ttl = steps(first.ttl);
        const message = { ttl, proposal, deadline: isLate ? now - 1 : now };
        const { after, answers } = acquireAll(this.#met(before, now), claims, now, message, this.rules);
        return { after, answers: answers.map((token) => token && Math.floor(token)) };
      },
    };
  }

  /**
   * Returns the state of the node after a request for a lock. If the marker is missing, the node has lost its data. The
   * request then writes a marker with the present time.
   */
  #met(records: Records, now: number): Records {
    return this.node.guardMs > 0 && records.born === undefined ? { ...records, born: now } : records;
  }

  /** Returns a lease to raise, mostly one with a record: the node does not raise a lease without a record. */
  #oneToRaise(): Lease {
    const ids = new Set([...this.#state.records.values()].map(({ id }) => id));
    const owners = this.#leases.filter((lease) => ids.has(this.#claims.of(lease).id));
    const leases = this.#random(4) > 0 && owners.length > 0 ? owners : this.#leases;
    return leases[this.#random(leases.length)] as Lease;
  }

  #tokenToRaise({ keys: [key = ''] }: Lease): number {
    const token = this.#state.records.get(key)?.token;
    if (token !== undefined && this.#random(2) === 0) return token + this.#random(6) - 2;
    return Math.floor(steps(Date.now() + this.#random(this.node.aheadMs)));
  }

  /** Returns one to three different leases. */
  #some(fit: (lease: Lease) => boolean): Lease[] {
    const fitting = this.#leases.filter(fit);
    const count = 1 + this.#random(Math.min(3, fitting.length));
    return Array.from({ length: count }, () => fitting.splice(this.#random(fitting.length), 1)).flat();
  }
}

function sameAnswers(answers: readonly unknown[], expected: readonly unknown[]): boolean {
  return expected.every((answer, index) => (answer || undefined) === answers[index]);
}

function sameRecords(stored: Records, after: Records, now: number, tolerance: number): boolean {
  const isClose = (one = 0, other = 0): boolean => Math.abs(one - other) <= tolerance;
  const isSame = (key: string): boolean => {
    const record = stored.records.get(key);
    const expected = recordAt({ ...after, record: after.records.get(key) }, now);
    if (!record || !expected) return record === expected;
    const { id, state, token, end } = expected;
    const isOne = record.id === id && record.state === state && record.token === Math.floor(token);
    return isOne && isClose(record.end, end);
  };
  const isMarker = (stored.marker ?? 0) === Math.floor(after.marker ?? 0) && isClose(stored.born, after.born);
  return KEYS.every(isSame) && isMarker;
}

let server: RedisServer;
let count = 0;

beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());
afterEach(() => {
  jest.useRealTimers();
});

/** Reads the time, each record with its remaining time, and the marker, within one millisecond. */
const READ = `
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + time[2] / 1000
end
local began, found
repeat
  began = now()
  found = {string.format('%.3f', began)}
  for i = 1, #KEYS - 1 do
    found[#found + 1] = redis.call('GET', KEYS[i]) or ''
    found[#found + 1] = tostring(redis.call('PTTL', KEYS[i]))
  end
until now() - began < 1
found[#found + 1] = redis.call('GET', KEYS[#KEYS]) or ''
return found`;

const STATES: Readonly<Record<string, LockRecord['state']>> = { H: 'held', K: 'kept', F: 'free' };

async function redisNode(): Promise<Node> {
  const client = server.client();
  const context = { ...newFleet(true, true), keyPrefix: `round-${count++}:` };
  const store = new RedisStore(openClient(server.url), true, context);
  await store.connect();
  // After this wait, the server is older than the guard, so only the age of its marker counts.
  await sleep(2 * GUARD_MS);
  const marker = `${context.keyPrefix}redlock-node`;
  const recordOf = (key: string): string => `${context.keyPrefix}{${key}}`;
  const clock = async (): Promise<number> => {
    const [seconds, micros] = await client.time();
    return Math.floor(steps(Number(seconds) * 1_000 + Number(micros) / 1_000));
  };
  return {
    store,
    shortMs: 25,
    aheadMs: 2 * LEAD_MS,
    guardMs: GUARD_MS,
    late: true,
    clock,
    read: async (claims) => {
      const [now, ...found] = (await client.eval(READ, KEYS.length + 1, ...KEYS.map(recordOf), marker)) as [
        string,
        ...string[],
      ];
      const records = new Map<string, LockRecord>();
      KEYS.forEach((key, index) => {
        const [record = '', left] = found.slice(2 * index);
        if (record === '') return;
        const { id, fencingToken: token } = parseRecord(record);
        const state = STATES[record.slice(0, 1)] as LockRecord['state'];
        records.set(key, { id: claims.numberOf(id), token, state, end: steps(Number(now) + Number(left)) });
      });
      const mark = found.at(-1) ?? '';
      const [born, high] = mark === '' ? [] : mark.split(':').map(Number);
      return { records, marker: high || undefined, born: born === undefined ? undefined : steps(born) };
    },
    pass: async (random) => {
      await sleep(1 + random(25));
      return { forgets: false };
    },
    tamper: async (random) => {
      const key = recordOf(KEYS[random(KEYS.length)] ?? '');
      const kind = random(5);
      if (kind === 0) await client.del(marker);
      else if (kind === 1) await client.pexpire(key, 0);
      else await client.pexpire(key, LINGER_MS / 2);
    },
  };
}

/** Fake time advances in ticks. Tokens follow the time in steps, and a tick is a whole number of steps. */
const TICK_MS = 125;

function memoryNode(): Promise<Node> {
  return nodeInMemory(() => ({
    store: new MemoryStore(),
    // Without a marker, a token must not be ahead of the clock by more than the time for which a record is kept.
    aheadMs: LEAD_MS / 2,
    guardMs: 0,
    late: false,
  }));
}

/** The rules of a simulated node are those of Redis; the guard is a whole number of ticks. */
const SIMULATED_GUARD_MS = 2 * TICK_MS;

function simulatedNode(): Promise<Node> {
  return nodeInMemory(() => ({
    store: new SimulatedStore(),
    aheadMs: 2 * LEAD_MS,
    guardMs: SIMULATED_GUARD_MS,
    late: true,
  }));
}

function nodeInMemory(make: () => Pick<Node, 'store' | 'aheadMs' | 'guardMs' | 'late'>): Promise<Node> {
  jest.useFakeTimers({ now: 14_000_000_000 * TICK_MS });
  return Promise.resolve({
    ...make(),
    shortMs: 2 * TICK_MS,
    clock: () => Promise.resolve(steps(Date.now())),
    read: () => Promise.resolve(undefined),
    pass: (random) => {
      const forgets = random(4) === 0;
      jest.advanceTimersByTime(forgets ? LONG_MS + 2 * LINGER_MS : TICK_MS * (1 + random(3)));
      return Promise.resolve({ forgets });
    },
  });
}

async function firstDifference(
  open: () => Promise<Node>,
  rules: RecordRules,
  messages: number,
): Promise<{ readonly difference: unknown; readonly seen: ReadonlySet<string> }> {
  const node = await open();
  const conversation = new Conversation(node, rules, randomInt(2 ** 31));
  const difference = await conversation.run(messages);
  await node.store.close();
  return { difference, seen: conversation.seen };
}

const SEEN = [
  ...[
    'acquire: yes',
    'acquire: no',
    'acquire: again',
    'raise: yes',
    'raise: no',
    'extend: yes',
    'extend: no',
  ],
  ...['held', 'kept', 'free'],
];

type Planted = [string, Partial<RecordRules>];

const PLANTED: Planted[] = [
  ['a new token may equal the token of the record', { above: false }],
  [
    'a duplicate of an ended acquisition is granted while the record has the id of that acquisition',
    { refuseOwn: false },
  ],
  ['a node raises a record that is not held', { raiseHeld: false }],
  ['a node accepts a raise below the token of the record', { raiseUpTo: false }],
  ['a node extends a lapsed lock', { extendHeld: false }],
  ['a node extends a lock for a claim that does not hold it', { extendOwn: false }],
  ['a release does not free the record', { free: false }],
];

/** Errors in the rules of nodes that have a server. */
const PLANTED_OF_SERVERS: Planted[] = [
  ['an acquisition has no deadline', { deadline: false }],
  ['there is no guard', { guard: 0 }],
  ['grants do not raise the marker', { marker: 'raises' }],
  ['raises do not raise the marker', { marker: 'grants' }],
  ['a node ignores the marker', { aboveMarker: 'never' }],
  ['a node with a record ignores the marker', { aboveMarker: 'without a record' }],
  ['a token that is ahead by less than the lead raises the marker', { lead: steps(LEAD_MS - 200) }],
];

describe.each<[string, () => Promise<Node>, number, RecordRules, string[], Planted[]]>([
  [
    'Redis, through its Lua scripts',
    redisNode,
    REDIS_MESSAGES,
    RULES,
    [...SEEN, 'acquire: marker', 'raise: marker'],
    [...PLANTED, ['a release deletes the record', { lingers: false }], ...PLANTED_OF_SERVERS],
  ],
  [
    'the simulator',
    simulatedNode,
    MEMORY_MESSAGES,
    { ...RULES, guard: steps(SIMULATED_GUARD_MS) },
    [...SEEN, 'acquire: marker', 'raise: marker'],
    [...PLANTED, ...PLANTED_OF_SERVERS],
  ],
  ['memory', memoryNode, MEMORY_MESSAGES, MEMORY_RULES, SEEN, PLANTED],
])('a node in %s', (_kind, open, messages, rules, outcomes, planted) => {
  test('the node follows the rules with messages in any order', async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const { difference, seen } = await firstDifference(open, rules, messages);
      expect(difference).toBeUndefined();
      expect([...seen]).toEqual(expect.arrayContaining(outcomes));
    }
  });

  test.each(planted)('the comparison with a node detects wrong rules in which %s', async (_what, plant) => {
    const { difference } = await firstDifference(open, { ...rules, ...plant }, MOST_MESSAGES);
    expect(difference).toBeDefined();
  });
});
