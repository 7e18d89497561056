import { LEAD_MS, STEPS_PER_SECOND, tokenAt } from '../../../lib/core/fencing-token.js';
import type { AcquireReply, AcquireRequest } from '../../../lib/core/ports.js';
import type { Lease } from '../../../lib/core/lease.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import { MemoryNode } from '../../../lib/stores/memory/memory-node.js';
import type { Answer, Command } from './commands.js';

/** A token that is ahead of the node's clock by more than this is stored in the marker. */
const LEAD = (LEAD_MS * STEPS_PER_SECOND) / 1_000;

/** Sends a message to a process that waits. */
export type Publish = (process: string, text: string) => void;

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
  /** The release that runs at present. */
  #released: string | undefined;
  #woken = 0;

  constructor(private readonly publish: Publish) {}

  /** Executes one command, as a server executes a script. */
  execute(command: Command): unknown {
    switch (command.name) {
      case 'acquire':
        return this.#acquireAll(command);
      case 'extend':
        return command.leases.map((lease) => (this.#memory.extend(lease, command.ttl) ? '1' : '0')).join('');
      case 'release':
        return command.requests.map((request) => {
          this.#woken = 0;
          this.#released = request.lease.id;
          this.#memory.release(request);
          this.#released = undefined;
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
      case 'forceRelease': {
        const { key, ids } = command;
        const ended = this.#memory.forceRelease(key, ids);
        return ended.map((id) => ids.indexOf(id) + 1);
      }
      case 'read':
        return command.keys.map((key) => this.#memory.read(key));
      case 'waiting':
        return command.keys.map((key) => this.#memory.waiting(key));
      case 'birth':
        if (command.marked) this.#born ??= Math.floor(Date.now());
        return [Date.now() * 1_000, this.#born ?? -1];
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

  get keys(): Iterable<string> {
    return this.#memory.keys;
  }

  #acquireAll({
    requests,
    ordered,
    marked,
    deadline,
    guard,
  }: Extract<Command, { name: 'acquire' }>): Answer[] {
    const now = Date.now();
    let young = 0;
    if (marked) {
      if (this.#born === undefined || this.#born > now) this.#born = Math.floor(now);
      young = guard - (now - this.#born);
    }
    const answers = requests.map((request): Answer => {
      if (!this.#isHeldBy(request.lease)) {
        if (now > deadline) return { late: Math.ceil(now - deadline) };
        if (young > 0) return { young: Math.ceil(young) };
      }
      return this.#acquire(request, ordered, marked);
    });
    return [...answers, now * 1_000];
  }

  #isHeldBy({ id, keys }: Lease): boolean {
    return keys.every((key) => {
      const state = this.#memory.read(key);
      return state && 'holders' in state && state.holders.some((holder) => holder.id === id);
    });
  }

  #acquire(request: AcquireRequest, ordered: boolean, marked: boolean): Answer {
    const position =
      ordered && request.position
        ? { ...request.position, waiter: this.#known(request.position.waiter) }
        : undefined;
    const proposal = this.#least(request.proposal);
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
  #least(proposal: number): number {
    const clock = tokenAt(Date.now());
    const least = Math.max(clock, Math.min(proposal, clock + LEAD));
    return Math.max(least, this.#high + 1);
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
    this.#memory.listen(waiter, (after) => {
      this.#woken++;
      this.publish(waiter.process, `${Math.ceil(after)} ${this.#released ?? '-'} ${waiter.number}`);
    });
    return waiter;
  }
}

/** An error that a server sends. */
export function refusal(message: string): Error {
  return Object.assign(new Error(message), { name: 'ReplyError' });
}
