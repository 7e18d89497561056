import { LEAD_MS, STEPS_PER_SECOND, tokenAt } from '../../../lib/core/fencing-token.js';
import type { YoungBecause } from '../../../lib/core/errors.js';
import type { AcquireReply, AcquireRequest } from '../../../lib/core/ports.js';
import type { Lease } from '../../../lib/core/lease.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import type { FormerServer, NodeAge } from '../../../lib/stores/redis/scripts/birth.js';
import { MemoryNode } from '../../../lib/stores/memory/memory-node.js';
import type { Answer, Command } from './commands.js';

/** A token that is ahead of the node's clock by more than this is stored in the marker. */
const LEAD = (LEAD_MS * STEPS_PER_SECOND) / 1_000;

/** The run of a server, and its history of replication. A former replica has a new one. */
export interface ServerIdentity {
  readonly runId: string;
  readonly history: string;
  /** `true` if the server has a former history: it was a replica. */
  readonly wasReplica: boolean;
}

/** See `identity.ts`. */
interface Identity {
  readonly runId: string;
  readonly history: string;
  readonly since: number;
  readonly wall: number;
  readonly cause?: YoungBecause;
  /** `true` if the node has not voted since its first sight. */
  readonly isUnused?: boolean;
}

/** Sends a message to a process that waits. Returns the number of clients that get it. */
export type Publish = (process: string, text: string) => number;

/**
 * The data of a Redis node, and what the scripts do with it: the records of {@link MemoryNode}, and the marker, guard and
 * deadline that only nodes with a server have. `test/model` compares it with the rules of records, as it compares Redis.
 */
export class SimulatedNode {
  readonly #memory = new MemoryNode();
  readonly #waiters = new Map<string, WaiterId>();
  /** Milliseconds since 1970 at the first contact. */
  #born: number | undefined;
  /** The largest token that was ahead of the node's clock. */
  #high = 0;
  /** The run of the server that wrote the data, and the first sight of it on the clocks of the node and of the client. */
  #identity: Identity | undefined;
  #woken = 0;

  /** @param server - returns the present identity of the server */
  constructor(
    private readonly publish: Publish,
    private readonly server: () => ServerIdentity,
  ) {}

  /** Executes one command, as a server executes a script. */
  execute(command: Command): unknown {
    switch (command.name) {
      case 'acquire':
        return this.#acquireAll(command);
      case 'exchange':
        return this.#exchange(command);
      case 'extend':
        return command.leases.map((lease) => (this.#memory.extend(lease, command.ttl) ? '1' : '0')).join('');
      case 'release':
        return command.requests.map((request) => {
          this.#woken = 0;
          this.#memory.release(request);
          return this.#woken;
        });
      case 'raise':
        return this.#raise(command.lease, command.token, command.marked) ? 1 : 0;
      case 'holdBack':
        return this.#memory.holdBack(this.#known(command.waiter), command.waited) ? 1 : 0;
      case 'letPass':
        return this.#memory.letPass(this.#known(command.waiter));
      case 'leave':
        return this.#memory.leave(this.#known(command.waiter));
      case 'forceRelease':
        return this.#memory.forceRelease(command.key, command.ids);
      case 'read':
        return command.keys.map((key) => this.#memory.read(key));
      case 'waiting':
        return command.keys.map((key) => this.#memory.waiting(key));
      case 'birth':
        return this.#birth(command);
      case 'probe':
        return 1;
      case 'probeKinds':
        return [];
    }
  }

  /** The holders of a key; for the judge. */
  read(key: string): ReturnType<MemoryNode['read']> {
    return this.#memory.read(key);
  }

  /** `true` if the node stores the lease under all its keys. */
  isHeldBy({ id, keys }: Lease): boolean {
    return keys.every((key) => {
      const state = this.#memory.read(key);
      return state && 'holders' in state && state.holders.some((holder) => holder.id === id);
    });
  }

  get keys(): Iterable<string> {
    return this.#memory.keys;
  }

  #acquireAll(command: Extract<Command, { name: 'acquire' }>): Answer[] {
    const { requests, ordered, marked } = command;
    const now = Date.now();
    // The script reads the marker once, before its first request.
    const high = this.#high;
    const unfit = this.#unfit(command);
    // The lease may have been granted by the server whose data this node got.
    const isCopy = typeof unfit === 'object' && 'young' in unfit && unfit.because !== undefined;
    const answers = requests.map((request): Answer => {
      if (unfit && (isCopy || !this.isHeldBy(request.lease))) return unfit;
      return this.#acquire(request, ordered, marked, high);
    });
    return [...answers, now * 1_000];
  }

  #exchange(command: Extract<Command, { name: 'exchange' }>): Answer[] {
    const unfit = this.#unfit(command);
    const granted: AcquireReply = { granted: true, token: 0 };
    const refused: AcquireReply = { granted: false, holder: { id: '', owner: '', remaining: 0 } };
    const exchanged = (): boolean => this.#memory.exchange(command.request);
    const answer = unfit ?? { reply: exchanged() ? granted : refused, waiting: false };
    return [answer, Date.now() * 1_000];
  }

  /** The answer to a command that comes too late, or to a node that must not vote yet. */
  #unfit({
    marked,
    deadline,
    guard,
    wall,
  }: Extract<Command, { name: 'acquire' | 'exchange' }>): Answer | undefined {
    const now = Date.now();
    let young = 0;
    let because: YoungBecause | undefined;
    if (marked) {
      const known = wall === undefined ? undefined : this.#identify(wall, false);
      if (this.#born === undefined || this.#born > now) this.#born = Math.floor(now);
      young = guard - (now - this.#born);
      if (known && guard - known.age >= young) {
        young = guard - known.age;
        because = known.cause;
      }
      if (this.#identity?.isUnused && young <= 0) this.#identity = { ...this.#identity, isUnused: false };
    }
    if (now > deadline) return { late: Math.ceil(now - deadline) };
    return young > 0 ? { young: Math.ceil(young), because } : undefined;
  }

  #birth({
    marked,
    wall,
    former,
  }: Extract<Command, { name: 'birth' }>): NodeAge & { readonly micros: number } {
    const now = Date.now();
    const micros = now * 1_000;
    if (!marked) return { micros, age: Infinity, cause: undefined };
    const known = wall === undefined ? undefined : this.#identify(wall, true, former);
    this.#born ??= Math.floor(now);
    const age = Math.max(0, now - this.#born);
    return known && known.age <= age ? { micros, ...known } : { micros, age, cause: undefined };
  }

  /**
   * Finds out whose data the node has, as the scripts do (`identity.ts`). Runs before the marker is set.
   *
   * @param compares - `false` to compare the run only if the history is another one
   */
  #identify(wall: number, compares: boolean, former?: FormerServer): NodeAge {
    const now = Math.floor(Date.now());
    const { runId, history, wasReplica } = this.server();
    const young = { runId, history, since: now, wall };
    const old = { runId, history, since: 0, wall: 0 };
    const known = this.#identity;
    if (!known) {
      this.#identity = this.#born === undefined ? { ...young, isUnused: true } : old;
    } else if (compares || known.history !== history) {
      const isAnother = former && former.runId !== runId && now - known.since > former.silentFor;
      const isOther = known.runId !== runId;
      const followed = wasReplica && (isOther || known.history !== history);
      if (isAnother || (isOther && (followed || !known.isUnused)))
        this.#identity = { ...young, cause: 'server' };
      else if (isOther) this.#identity = { ...known, ...old };
      else if (followed) this.#identity = { ...young, cause: 'replication' };
      else this.#identity = { ...known, runId, history };
    }
    const { since, wall: walled, cause } = this.#identity as Identity;
    if (since === 0) return { age: Infinity, cause };
    if (since > now || walled > wall)
      this.#identity = {
        ...(this.#identity as Identity),
        since: Math.min(since, now),
        wall: Math.min(walled, wall),
      };
    return { age: Math.max(0, Math.min(now - since, wall - walled)), cause };
  }

  #acquire(request: AcquireRequest, ordered: boolean, marked: boolean, high: number): Answer {
    const position =
      ordered && request.position
        ? { ...request.position, waiter: this.#known(request.position.waiter) }
        : undefined;
    const proposal = request.heals === true ? request.proposal : this.#least(request.proposal, high);
    const reply = this.#memory.acquire({ ...request, position, proposal }, ordered);
    if (reply instanceof Error) return refusal(`ERR ${reply.message}`);
    if (!reply.granted) return { reply, waiting: ordered };
    this.#noteToken(reply.token, marked);
    return ordered ? this.#granted(reply, request, position) : { reply, waiting: false };
  }

  /** Adds what a grant says about the waiters at the node that keeps the queue. */
  #granted(
    reply: Extract<AcquireReply, { granted: true }>,
    { lease }: AcquireRequest,
    position: AcquireRequest['position'],
  ): Answer {
    const [first] = this.#memory.waiting(lease.keys[0] ?? '');
    if (!first) return { reply, waiting: false };
    const { process, number } = position?.waiter ?? {};
    const isNext = position?.next !== undefined && first.process === process && first.number === number;
    return { reply: isNext ? { ...reply, nextIsFirst: true } : reply, waiting: true };
  }

  /** The least token of a new grant: at most the lead ahead of the node's clock, and above the marker. */
  #least(proposal: number, high: number): number {
    const clock = tokenAt(Date.now());
    const least = Math.max(clock, Math.min(proposal, clock + LEAD));
    return Math.max(least, high + 1);
  }

  #noteToken(token: number, marked: boolean): void {
    if (marked && token > tokenAt(Date.now()) + LEAD) this.#high = Math.max(this.#high, token);
  }

  #raise(lease: Lease, token: number, marked: boolean): boolean {
    if (!marked && token > tokenAt(Date.now()) + LEAD) return false;
    const can = this.#memory.raise(lease, token);
    if (can) this.#noteToken(token, marked);
    return can;
  }

  /** The node's own object for a waiter, with which it finds the waiter again. */
  #known(waiter: WaiterId): WaiterId {
    const name = `${waiter.process}/${waiter.number}`;
    const known = this.#waiters.get(name);
    if (known) return known;
    this.#waiters.set(name, waiter);
    this.#memory.listen(waiter, (after, _, released) => {
      const text = `${Math.ceil(after)} ${released ?? '-'} ${waiter.number}`;
      if (this.publish(waiter.process, text) > 0) this.#woken++;
      // A dead process is passed over at once (`queue.ts`).
      else this.#memory.leave(waiter);
    });
    return waiter;
  }
}

/** An error that a server sends. */
export function refusal(message: string): Error {
  return Object.assign(new Error(message), { name: 'ReplyError' });
}
