import { strict as assert } from 'node:assert';
import { setTimeout as sleep } from 'node:timers/promises';
import { Lease } from '../../core/lease.js';
import { EXCLUSIVE, type LockKind, type LockMode, SHARED } from '../../core/lock-mode.js';
import type {
  AcquireReply,
  AcquireRequest,
  ExchangeRequest,
  HeldKey,
  QueuePosition,
  Store,
  Subscription,
  Tell,
} from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';

/**
 * The default ttl of the tests in milliseconds. It is longer than any pause of a machine, so that a lock expires only
 * when a test wants it.
 */
export const TTL = 60_000;

/** The number of permits, unless a test gives another one. */
export const PERMITS = 3;

/** Milliseconds between the arrivals of waiters, so that a store surely gets them in this order. */
const APART = 60;

export type Granted = Extract<AcquireReply, { granted: true }>;
export type Refused = Extract<AcquireReply, { granted: false }>;

/** The parameters of a request. */
export type Terms = Partial<Omit<AcquireRequest, 'lease'>> & { readonly ordered?: boolean };

export function kindOf(mode: LockMode, permits = PERMITS): LockKind {
  if (mode === 'permits') return { mode, permits };
  return mode === 'shared' ? SHARED : EXCLUSIVE;
}

let keys = 0;
let waiters = 0;

/** A key that no other test uses. All keys have a common hash tag, so that one lock can have several of these keys. */
export function freshKey(): string {
  return `{contract}:${keys++}`;
}

export function leaseOf(kind: LockKind, locked: string | readonly string[], ttl = TTL, owner = 'me'): Lease {
  return new Lease(typeof locked === 'string' ? [locked] : locked, owner, ttl, undefined, kind);
}

/** Waits for a condition; fails when it is not true within the limit, by default half a minute. */
export async function until(condition: () => Promise<boolean> | boolean, limit = 30_000): Promise<void> {
  const began = performance.now();
  while (!(await condition())) {
    assert.ok(performance.now() - began < limit, `${String(condition)} did not become true in ${limit} ms`);
    await sleep(5);
  }
}

/**
 * Milliseconds within which a message must reach its waiter. A waiter asks by itself every five seconds, so a message
 * that comes later is useless.
 */
const MESSAGE_MS = 5_000;

/**
 * Milliseconds that a request takes on a machine that is not busy. A waiter has 150 ms for its turn, in which a scenario
 * has up to six requests.
 */
const SOON = 25;
/** Shortest time in milliseconds for which a call of `holdBack` has an effect. */
export const MARKED = 1_000;

/**
 * Runs a scenario whose outcome is valid only within `milliseconds` after the scenario has called `begins`. If the
 * scenario fails later, the machine was paused, and the scenario is repeated.
 */
export async function inTime<Result>(
  milliseconds: number,
  scenario: (begins: () => void) => Promise<Result>,
): Promise<Result> {
  for (let tries = 1; ; tries++) {
    let began = Infinity;
    try {
      return await scenario(() => (began = performance.now()));
    } catch (error) {
      if (tries === 20 || !(performance.now() - began > milliseconds)) throw error;
    }
  }
}

/** The moment of the last answer or message that came later than {@link SOON}. */
let slowAt = -Infinity;

async function timed<Result>(work: Promise<Result>): Promise<Result> {
  const began = performance.now();
  const result = await work;
  const ended = performance.now();
  if (ended - began > SOON) slowAt = ended;
  return result;
}

/**
 * A `test` for scenarios in which waiters must take their turns in time. If a scenario fails and one of its requests was
 * slow, a turn may have passed, and the scenario is repeated.
 */
export function inTurn(test: Contract['test']): Contract['test'] {
  return (name, body) =>
    test(name, async () => {
      for (let tries = 1; ; tries++) {
        const began = performance.now();
        try {
          return await body();
        } catch (error) {
          if (tries === 20 || slowAt < began) throw error;
        }
      }
    });
}

/** The test runner: the functions of Jest, Vitest or `node:test`. */
export interface ContractRunner {
  describe(name: string, body: () => void): unknown;

  /** @param limit - milliseconds after which the test has failed; `node:test` ignores it */
  test(name: string, body: () => Promise<void>, limit: number): unknown;
}

/** Values that all parts of the contract use. */
export interface Contract {
  test(name: string, body: () => Promise<void>): unknown;
  readonly modes: readonly LockMode[];
  /**
   * A short ttl in milliseconds. It is short enough that a test can wait for its end, and longer than a request takes
   * on a busy machine.
   */
  readonly lapse: number;
  /** Largest number of permits that a test holds at a time. */
  readonly mostPermits: number;
  /** The tested store. */
  open(): StoreAsker;
}

/** Asks a store for one lease at a time, with a Promise for the answer. */
export class StoreAsker {
  constructor(readonly store: Store) {}

  acquire(lease: Lease, { ordered = false, ...terms }: Terms = {}): Promise<AcquireReply> {
    return timed(answerOf((tell) => this.store.acquire([requestFor(lease, terms)], ordered, tell)));
  }

  async granted(lease: Lease, terms?: Terms): Promise<Granted> {
    const reply = await this.acquire(lease, terms);
    assert.ok(reply.granted, `${lease.owner} is refused because of ${JSON.stringify(reply)}`);
    return reply;
  }

  async refused(lease: Lease, terms?: Terms): Promise<Refused> {
    const reply = await this.acquire(lease, terms);
    assert.ok(!reply.granted, `${lease.owner} is granted: ${JSON.stringify(reply)}`);
    return reply;
  }

  /**
   * Sends all requests in the same turn of the event loop: together in one call of `acquire`, or each in a call of its
   * own. The answers are in the order of the leases.
   */
  async acquireAll(leases: readonly Lease[], inOneCall: boolean): Promise<(AcquireReply | Error)[]> {
    if (!inOneCall)
      return Promise.all(leases.map((lease) => this.acquire(lease).catch((error: Error) => error)));
    const requests = leases.map((lease) => requestFor(lease));
    return answersOf(requests.length, (tell) => this.store.acquire(requests, false, tell));
  }

  /** Checks that the store refuses the lease or fails, and stores nothing. */
  async notGranted(lease: Lease, terms?: Terms): Promise<void> {
    const reply = await this.acquire(lease, terms).catch((error: unknown) => error);
    assert.ok(!(reply as AcquireReply).granted, `${lease.owner} is granted: ${JSON.stringify(reply)}`);
  }

  extend(lease: Lease, ttl = TTL): Promise<boolean> {
    return patient(ttl, () => answerOf((tell) => this.store.extend([lease], ttl, tell)));
  }

  /** Puts a lease in the place of others. */
  exchange(lease: Lease, replaces: readonly Lease[], terms: Partial<ExchangeRequest> = {}): Promise<boolean> {
    assert.ok(this.store.exchange);
    const ids = replaces.map(({ id }) => id);
    return this.store.exchange({
      lease,
      replaces: ids,
      since: Date.now(),
      limit: 10_000,
      guard: 0,
      ...terms,
    });
  }

  release(lease: Lease, pause = 0, wasHeld = false): Promise<undefined> {
    const requests = [{ lease, pause, wasHeld }];
    return timed(patient(lease.ttl, () => answerOf((tell) => this.store.release(requests, tell))));
  }

  async raise(lease: Lease, token: number): Promise<boolean> {
    assert.ok(this.store.raise, 'a store that is one of several nodes must have `raise`');
    return this.store.raise(lease, token);
  }

  async read(key: string): Promise<HeldKey | undefined> {
    const [state] = (await this.store.read?.([key])) ?? [new Error('the store has no `read`')];
    assert.ok(!(state instanceof Error), String(state));
    return state;
  }

  /** The ids of the key's holders, in the order of their ends. */
  async holders(key: string): Promise<string[]> {
    return ((await this.read(key))?.holders ?? []).map(({ id }) => id);
  }

  async lapsed(key: string, lease: Lease): Promise<void> {
    await until(async () => !(await this.holders(key)).includes(lease.id));
  }

  /** Makes a waiter for the keys. It gets messages, and it came noticeably later than all earlier waiters. */
  async waiter(mode: LockMode, ...locked: string[]): Promise<QueuedCaller> {
    await sleep(APART);
    const number = ++waiters;
    const process = number.toString(16).padStart(16, '0');
    const waiter = new QueuedCaller(
      { keys: locked, mode, process, number, owner: `waiter ${number}` },
      this.store,
    );
    await until(() => waiter.isReady);
    waiter.forget();
    return waiter;
  }

  /** Makes a waiter that was refused and is in the queue. */
  async queued(kind: LockKind, ...locked: string[]): Promise<QueuedCaller> {
    const waiter = await this.waiter(kind.mode, ...locked);
    await this.refused(leaseOf(kind, locked), waiter.terms);
    return waiter;
  }
}

/**
 * Asks again for up to 5 s if a request about a short ttl fails. A store may give such a request little time, so that a
 * busy machine needs another one; extensions and releases may be repeated.
 */
async function patient<Answer>(ttl: number, ask: () => Promise<Answer>): Promise<Answer> {
  for (const began = performance.now(); ;) {
    try {
      return await ask();
    } catch (error) {
      if (ttl >= TTL || performance.now() - began > 5_000) throw error;
    }
  }
}

function requestFor(lease: Lease, terms: Omit<Terms, 'ordered'> = {}): AcquireRequest {
  return {
    lease,
    since: Date.now(),
    limit: 10_000,
    guard: 0,
    proposal: 0,
    position: undefined,
    ...terms,
  };
}

/** A waiter in the queue. */
export class QueuedCaller {
  /** The delays in the messages that the waiter has received, in milliseconds. */
  readonly told: number[] = [];
  /** The earliest moment at which a message lets the waiter try, by the monotonic clock. */
  mayTryAt = Infinity;
  readonly #came = performance.now();
  readonly #subscription: Subscription;

  constructor(
    readonly id: WaiterId,
    private readonly store: Store,
  ) {
    assert.ok(store.listen && store.leave, 'a store that keeps the order must have `listen` and `leave`');
    this.#subscription = store.listen(id, (after) => {
      this.told.push(after);
      this.mayTryAt = Math.min(this.mayTryAt, performance.now() + after);
    });
  }

  get isReady(): boolean {
    return this.#subscription.ready;
  }

  get waited(): number {
    return performance.now() - this.#came;
  }

  /** The parameters of the waiter's requests. */
  get terms(): Terms {
    return this.termsWith(undefined);
  }

  /** @param next - milliseconds that the next waiter of the same process has waited */
  termsWith(next: number | undefined): Terms {
    const position: QueuePosition = { waiter: this.id, waited: this.waited, next };
    return { ordered: true, position };
  }

  /** Discards the messages that have come so far. */
  forget(): void {
    this.told.length = 0;
    this.mayTryAt = Infinity;
  }

  async toldAtOnce(): Promise<void> {
    await timed(until(() => this.told.includes(0), MESSAGE_MS));
  }

  /** Waits for the moment at which a message lets the waiter try. The message must come within `within` milliseconds. */
  async toldToTry(within: number): Promise<void> {
    await until(() => this.mayTryAt <= performance.now(), within + MESSAGE_MS);
  }

  async leave(): Promise<void> {
    this.#subscription.stop();
    await this.store.leave?.(this.id);
  }
}

/** The answers to several requests of one call, in the order of the requests. Each request must get one answer. */
export async function answersOf<Reply>(
  count: number,
  ask: (tell: Tell<Reply>) => void,
): Promise<(Reply | Error)[]> {
  const answers = Array.from({ length: count }, (): (Reply | Error)[] => []);
  ask((index, reply) => answers[index]?.push(reply));
  await until(() => answers.every(({ length }) => length > 0));
  assert.ok(
    answers.every(({ length }) => length === 1),
    'a request got two answers',
  );
  return answers.map(([answer]) => answer!);
}

/** The answer to one request; rejects when the answer is an error. */
export function answerOf<Reply>(ask: (tell: Tell<Reply>) => void): Promise<Reply> {
  return new Promise((resolve, reject) => {
    ask((_, reply) => (reply instanceof Error ? reject(reply) : resolve(reply)));
  });
}
