import type { LockHandle } from '../../../lib/core/lock-handle.js';
import type { LockMode } from '../../../lib/core/lock-mode.js';
import type { Command } from '../node/commands.js';
import { longestTtl, permitsOf, type Plan } from '../plans/plan.js';
import { nodeLimit } from '../workload/limits.js';
import type { SimulatedProcess } from '../world/process.js';
import type { World } from '../world/world.js';
import { notPromised } from './promises.js';
import type { Finding, Rule } from './rules.js';
import { Tokens } from './tokens.js';

/** Milliseconds that a call may need beyond its limits: turns of the event loop, and the release of a failed attempt. */
const CALL_GRACE_MS = 250;

/** Milliseconds after which a call that has not settled never will. */
const NEVER_MS = 20_000;

/** Milliseconds between two looks at the locks that are held. */
const LOOK_MS = 50;

/** Milliseconds after the end of the validity within which the loss is told. */
const LOSS_GRACE_MS = 100;
/** The same after the clocks of the process have jumped (S29). */
const LOSS_AFTER_JUMP_MS = 600;

/** Milliseconds after a release until its holder repeats it, beside the time limit of a node (S27). */
const STRAY_MS = 200;

const BY_FORCE = 'released by force';

/** A call of the library that has not settled. */
export interface Call {
  readonly process: SimulatedProcess;
  readonly what: string;
  /** Milliseconds. */
  readonly limit: number;
  readonly from: number;
  /** The one key for which the call waits. */
  readonly key: string | undefined;
  /** The keys for which the call waits, if there are several. */
  readonly keys: readonly string[];
  /** The mode of the requested lock. */
  readonly mode: LockMode;
  isSettled: boolean;
  isReported: boolean;
}

/** A lock that a process acquired. */
export interface Holding {
  readonly process: SimulatedProcess;
  readonly lock: LockHandle;
  readonly since: number;
  /** Milliseconds for which nodes may keep the lock after its end. */
  keepsFor: number;
  /** The call was made at this time. */
  readonly called: number;
  /** `true` for the lock that is held as long as possible. */
  readonly isLong: boolean;
  released: number | undefined;
  lost: number | undefined;
  /** The time since which the validity has been over, without a word of it. */
  overdueSince: number | undefined;
  /** `true` if the clocks of the process have jumped during the hold. */
  jumped: boolean;
  /** The reason for which this lock may overlap with another one, or may be lost. */
  excuse: string | undefined;
}

interface HoldTerms {
  readonly isLong?: boolean;
  readonly keepsFor?: number;
  /** The lock that another process has detached, and whose pass this process has attached. */
  readonly from?: LockHandle;
  /** The time since which a request for the lock may have been on its way; by default that of the call. */
  readonly asked?: number;
}

/** Checks what the processes tell: calls, locks, losses. It knows the true time. */
export class Judge {
  readonly findings: Finding[] = [];
  readonly active = new Set<Holding>();
  /** All locks by the ids of their leases. */
  readonly holdings = new Map<string, Holding>();
  acquisitions = 0;
  isOver = false;
  /** The time of the last call for each key, and of the last grant, release or loss of its lock. */
  readonly changedAt = new Map<string, number>();
  /** The last jump of each process that its clocks do not show. */
  readonly #excuses = new Map<SimulatedProcess, { readonly excuse: string; readonly until: number }>();
  readonly #calls = new Set<Call>();
  /** The times of the calls that do not wait, by their process and key. */
  readonly #tries = new Map<string, number[]>();
  /** The end of the last call for a key and other keys. */
  readonly #wantedWithOthers = new Map<string, number>();
  /** Milliseconds for which a request that was under way at a release may still store the lock. */
  readonly #strayFor: number;
  readonly #mostPermits: number;
  readonly #notPromised: readonly Rule[];
  readonly #tokens: Tokens;
  readonly #ticks = new Map<number, string>();
  readonly #freeSince = new Map<string, number>();
  /** For each key the time until which a node may keep a detached lock that was given back to it too late. */
  readonly #detachedUntil = new Map<string, number>();
  /** The ids of the leases that `forceRelease` has ended on a node. */
  readonly #endedByForce = new Set<string>();

  /**
   * @param plan - the world
   * @param stopAt - the rules with which the run ends when one of them is broken
   */
  constructor(
    readonly world: World,
    plan: Plan,
    private readonly stopAt: readonly Rule[],
  ) {
    this.#mostPermits = Math.max(...permitsOf(plan));
    this.#strayFor = nodeLimit(longestTtl(plan), plan) + STRAY_MS;
    this.#notPromised = notPromised(plan);
    this.#tokens = new Tokens(this.#notPromised.includes('exclusion'));
    this.#look();
  }

  find(rule: Rule, text: string): void {
    if (this.#notPromised.includes(rule)) return;
    const { time } = this.world;
    this.world.note(`*** ${rule}: ${text}`);
    if (!this.findings.some((found) => found.rule === rule)) this.findings.push({ rule, text, time });
    if (this.stopAt.includes(rule)) this.world.isStopped = true;
  }

  called(
    process: SimulatedProcess,
    what: string,
    limit: number,
    waitsFor?: string | readonly string[],
    mode: LockMode = 'exclusive',
  ): Call {
    const from = this.world.time;
    const [key, keys] = typeof waitsFor === 'string' ? [waitsFor, []] : [undefined, waitsFor ?? []];
    const call = { process, what, limit, key, keys, mode, from, isSettled: false, isReported: false };
    this.#calls.add(call);
    if (key !== undefined) this.#changed([key]);
    this.world.note(`${process.name} ${what}`);
    return call;
  }

  /** Records a call that makes one attempt, and does not wait. */
  tries(process: SimulatedProcess, key: string): void {
    const name = `${process.name}, ${key}`;
    const times = this.#tries.get(name) ?? [];
    this.#tries.set(name, times);
    times.push(this.world.time);
  }

  /** The number of calls of a process that made one attempt since then. */
  triesSince(owner: string, keys: readonly string[], since: number): number {
    const times = this.#tries.get(`${owner}, ${keys}`) ?? [];
    return times.filter((time) => time >= since).length;
  }

  settled(call: Call, how: string): void {
    if (call.isSettled) return;
    call.isSettled = true;
    this.#calls.delete(call);
    const { process, what, limit, keys } = call;
    for (const key of keys) this.#wantedWithOthers.set(key, this.world.time);
    const took = this.#tookOf(call);
    this.world.note(`${process.name} ${what}: ${how}, ${Math.round(took)} ms`);
    if (took > limit + CALL_GRACE_MS)
      this.find(
        'late-call',
        `${process.name} ${what} took ${Math.round(took)} of ${Math.round(limit)} ms: ${how}`,
      );
  }

  #tookOf({ from, process }: Call): number {
    return this.world.time - from - process.stalledSince(from);
  }

  /** Records a lock that a call returned. */
  holds(
    call: Call,
    lock: LockHandle,
    { isLong = false, keepsFor = 0, from, asked = call.from }: HoldTerms = {},
  ): Holding {
    const { process } = call;
    this.acquisitions++;
    const holding: Holding = {
      ...{ process, lock, since: this.world.time, keepsFor, called: call.from, isLong },
      ...{ released: undefined, lost: undefined, overdueSince: undefined, jumped: false, excuse: undefined },
    };
    // The lease can end before its acquisition is answered.
    if (this.#endedByForce.has(lock.id)) holding.excuse = BY_FORCE;
    // The votes of an acquisition can be older than the jump, and the process cannot know that.
    const jump = this.#excuses.get(process);
    if (jump && jump.until > asked) holding.excuse ??= jump.excuse;
    if (lock.remaining() <= 0) this.find('lapsed', `${process.name} got ${lock.keys} without validity`);
    for (const other of this.active) this.#compare(holding, other);
    // The key of a lease that was ended by force may have had other holders since.
    if (holding.excuse === undefined)
      lock.keys.forEach((key, index) => this.#checkToken(holding, key, lock.slots?.[index], from));
    this.active.add(holding);
    this.#changed(lock.keys);
    this.onGrant?.(call, lock.mode);
    for (const key of lock.keys) this.#freeSince.delete(key);
    this.holdings.set(lock.id, holding);
    const lost = (): void => this.#lost(holding);
    lock.signal.addEventListener('abort', lost, { once: true });
    if (lock.signal.aborted) lost();
    return holding;
  }

  /**
   * A process has detached its lock: nobody holds it, and no waiter gets it. A node that missed the detachment keeps the
   * lock for its ttl.
   */
  detaches(holding: Holding, ttl: number): void {
    holding.released ??= this.world.time;
    const { keys } = holding.lock;
    holding.keepsFor = ttl;
    // An attempt to attach it, within the ttl, extends it.
    for (const key of keys) this.#detachedUntil.set(key, this.world.time + 2 * ttl);
    this.#changed(holding.lock.keys);
    this.active.delete(holding);
  }

  releases(holding: Holding): void {
    holding.released ??= this.world.time;
    this.#changed(holding.lock.keys);
    this.active.delete(holding);
    if (holding.lost !== undefined || holding.excuse !== undefined) return;
    for (const key of holding.lock.keys) this.#freeSince.set(key, holding.released + holding.keepsFor);
  }

  /** The time of the last release of a key; `undefined` while it is held, and when a lost lock may still be stored. */
  freeSince(key: string): number | undefined {
    const free = this.#freeSince.get(key);
    return free === undefined ? undefined : Math.max(free, this.#detachedUntil.get(key) ?? 0);
  }

  /** The calls that wait for one key. */
  *waitingFor(key: string): Iterable<Call> {
    for (const call of this.#calls) if (call.key === key) yield call;
  }

  /** `true` if a call has waited for this key and other keys since then. */
  isWantedWithOthers(key: string, since: number): boolean {
    const until = this.#wantedWithOthers.get(key) ?? -Infinity;
    return until >= since || [...this.#calls].some(({ keys }) => keys.includes(key));
  }

  /** A process runs a tick. */
  runs(tick: number, { lock, process, excuse }: Holding): void {
    if (!lock.isHeld() || excuse !== undefined) return;
    const before = this.#ticks.get(tick);
    if (before !== undefined) this.find('tick-twice', `${before} and ${process.name} ran the tick ${tick}`);
    this.#ticks.set(tick, process.name);
  }

  /**
   * A node ends leases because of `forceRelease`. Others may get their keys before the holders learn of the loss. No other
   * lock may overlap, however long the call lasts and however late its bytes arrive.
   */
  endedByForce(ids: readonly string[]): void {
    for (const id of ids) {
      this.#endedByForce.add(id);
      const holding = this.holdings.get(id);
      if (holding) holding.excuse ??= BY_FORCE;
    }
  }

  /** A node has stored a held lock again, with this token (S26). */
  healed(name: string, { id, keys }: Pick<LockHandle, 'id' | 'keys'>, token: number): void {
    const least = this.holdings.get(id)?.lock.fencingToken ?? 0;
    if (token < least) this.find('token-lowered', `${name} stores ${keys} with ${token}, below ${least}`);
  }

  /**
   * The thread that renews the locks of a process sends a command. For a moment after a release it may still store the lock,
   * because the holder then releases it once more.
   */
  threadSends(thread: SimulatedProcess, command: Command): void {
    if (command.name !== 'acquire') return;
    for (const { lease } of command.requests) {
      const released = this.holdings.get(lease.id)?.released ?? Infinity;
      if (this.world.time - released > this.#strayFor)
        this.find('revived', `${thread.name} stores ${lease.keys} again, which was released`);
    }
  }

  /**
   * The clocks of a process jump, or stand still.
   *
   * @param lasts - milliseconds for which the process does not run
   */
  jumped(process: SimulatedProcess, excuse?: string, lasts = 0): void {
    if (excuse !== undefined) this.#excuses.set(process, { excuse, until: this.world.time + lasts });
    for (const holding of this.active) {
      if (holding.process !== process) continue;
      holding.jumped = true;
      holding.excuse ??= excuse;
    }
  }

  #lost(holding: Holding): void {
    const { lock, process } = holding;
    if (holding.released !== undefined || holding.lost !== undefined) return;
    holding.lost = this.world.time;
    this.#changed(lock.keys);
    this.active.delete(holding);
    const reason = (lock.signal.reason as Error).message;
    this.world.note(`${process.name} lost ${lock.keys}: ${reason}`);
    this.onLost?.(holding, reason);
  }

  #changed(keys: readonly string[]): void {
    for (const key of keys) this.changedAt.set(key, this.world.time);
  }

  /** Called when a call gets a lock. */
  onGrant: ((call: Call, mode: LockMode) => void) | undefined;

  /** Called when a process is told of a loss. */
  onLost: ((holding: Holding, reason: string) => void) | undefined;

  #look(): void {
    this.world.after(LOOK_MS, () => {
      if (this.isOver) return;
      const all = [...this.active];
      all.forEach((holding, index) => {
        if (holding.process.isDead) return void this.active.delete(holding);
        for (const other of all.slice(index + 1)) this.#compare(holding, other);
        return this.#checkLoss(holding);
      });
      this.#checkPermits(all);
      for (const call of this.#calls) this.#checkCall(call);
      this.#look();
    });
  }

  #compare(one: Holding, other: Holding): void {
    if (one.process.isDead || other.process.isDead || one.lock.id === other.lock.id) return;
    const [a, b] = [one.lock, other.lock];
    for (const [at, key] of a.keys.entries()) {
      const there = b.keys.indexOf(key);
      if (there < 0 || (a.mode === 'shared' && b.mode === 'shared')) continue;
      if (a.mode === 'permits' && b.mode === 'permits' && a.slots?.[at] !== b.slots?.[there]) continue;
      const [mine, theirs] = [one.process, other.process].map((process, index) =>
        this.inside(process, () => (index === 0 ? a : b).remaining()),
      ) as [number, number];
      if (mine <= 0 || theirs <= 0 || one.excuse !== undefined || other.excuse !== undefined) continue;
      const validity = `${Math.round(mine)} and ${Math.round(theirs)} ms`;
      this.find(
        'exclusion',
        `${one.process.name} and ${other.process.name} hold ${key}, for ${validity} more`,
      );
    }
  }

  /** There are never more holders of a key than the largest number of permits (S20). */
  #checkPermits(all: readonly Holding[]): void {
    const holders = all.filter(
      ({ process, lock, excuse }) =>
        lock.mode === 'permits' &&
        !process.isDead &&
        excuse === undefined &&
        this.inside(process, () => lock.remaining()) > 0,
    );
    if (holders.length > this.#mostPermits)
      this.find('exclusion', `${holders.length} hold q, which has ${this.#mostPermits} permits`);
  }

  /** Reads something with the clocks of a process. */
  inside: <T>(process: SimulatedProcess, read: () => T) => T = (_, read) => read();

  /** @param from - the lock that another process has detached, whose token this one has */
  #checkToken(holding: Holding, key: string, slot: number | undefined, from?: LockHandle): void {
    const {
      process,
      lock: { fencingToken },
    } = holding;
    const floor = this.#tokens.add(holding, key, slot);
    if (from ? fencingToken !== from.fencingToken || fencingToken < floor : fencingToken <= floor)
      this.find('token', `${process.name} got ${key} with the token ${fencingToken}, after ${floor}`);
  }

  #checkLoss(holding: Holding): void {
    const { process, lock } = holding;
    if (!process.isRunning || this.inside(process, () => lock.remaining()) > 0) {
      holding.overdueSince = undefined;
      return;
    }
    const { time } = this.world;
    holding.overdueSince ??= time;
    const late = time - holding.overdueSince;
    if (late > (holding.jumped ? LOSS_AFTER_JUMP_MS : LOSS_GRACE_MS))
      this.find(
        'late-loss',
        `${process.name} was not told for ${Math.round(late)} ms that ${lock.keys} had lapsed`,
      );
  }

  #checkCall(call: Call): void {
    const { process, what, limit } = call;
    if (process.isDead) return void this.#calls.delete(call);
    if (call.isReported || this.#tookOf(call) < limit + NEVER_MS) return undefined;
    call.isReported = true;
    const rule = what === 'close' ? 'close-hangs' : 'never-settled';
    return this.find(
      rule,
      `${process.name} ${what} has not settled after ${Math.round(this.#tookOf(call))} ms`,
    );
  }
}
