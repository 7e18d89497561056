import type { Lease } from '../../lib/core/lease.js';
import type { NodeCheck } from '../../lib/core/node-status.js';
import type {
  AcquireReply,
  AcquireRequest,
  ExchangeRequest,
  KeyState,
  ReleaseRequest,
  Store,
  Subscription,
  Tell,
} from '../../lib/core/ports.js';
import type { WaiterId } from '../../lib/core/waiter-id.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';

type Request =
  | 'acquire'
  | 'exchange'
  | 'raise'
  | 'extend'
  | 'release'
  | 'leave'
  | 'read'
  | 'scan'
  | 'forceRelease'
  | 'check';

/** Outcome of a request: a reply after so many milliseconds, no reply, or an error. */
export type Fate = number | 'hang' | Error;

/**
 * A node that really locks, in memory, and answers as the test says. A request without a reply is executed
 * nevertheless, as on a real connection. Requests are counted for each lease.
 */
export class ScriptedNode implements Store {
  readonly memory = new MemoryStore();
  readonly requests: Request[] = [];
  readonly leases: Lease[] = [];
  fate: Partial<Record<Request, Fate>> = {};
  available = true;
  readonly subscribed = true;

  get modes(): Store['modes'] {
    return this.memory.modes;
  }

  constructor(readonly name = 'node') {}

  connect(): Promise<void> {
    return Promise.resolve();
  }

  contended(): boolean {
    return this.memory.contended();
  }

  time(): number {
    return this.memory.time();
  }

  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    for (const [index, request] of requests.entries()) {
      this.leases.push(request.lease);
      this.#tell<AcquireReply>('acquire', index, tell, (answer) =>
        this.memory.acquire([request], ordered, (_, reply) => answer(reply)),
      );
    }
  }

  exchange(request: ExchangeRequest): Promise<boolean> {
    this.leases.push(request.lease);
    return this.#answer('exchange', () => this.memory.exchange(request));
  }

  raise(lease: Lease, token: number): Promise<boolean> {
    return this.#answer('raise', () => this.memory.raise(lease, token));
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    for (const [index, lease] of leases.entries()) {
      this.#tell<boolean>('extend', index, tell, (answer) =>
        this.memory.extend([lease], ttl, (_, reply) => answer(reply)),
      );
    }
  }

  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    for (const [index, request] of requests.entries()) {
      this.#tell<undefined>('release', index, tell, (answer) =>
        this.memory.release([request], (_, reply) => answer(reply)),
      );
    }
  }

  listen(
    waiter: WaiterId,
    onMessage: (after: number, turn: boolean, released?: string) => void,
  ): Subscription {
    return this.memory.listen(waiter, onMessage);
  }

  leave(waiter: WaiterId): Promise<void> {
    return this.#answer('leave', () => this.memory.leave(waiter));
  }

  read(keys: readonly string[]): Promise<readonly KeyState[]> {
    return this.#answer('read', () => this.memory.read(keys));
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    for await (const page of this.memory.scan(prefix))
      yield this.#answer('scan', () => Promise.resolve(page));
  }

  forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    return this.#answer('forceRelease', () => this.memory.forceRelease(key, ids));
  }

  check(): Promise<NodeCheck> {
    return this.#answer('check', () => this.memory.check());
  }

  close(): Promise<void> {
    return this.memory.close();
  }

  count(request: Request): number {
    return this.requests.filter((each) => each === request).length;
  }

  #tell<Reply>(
    request: Request,
    index: number,
    tell: Tell<Reply>,
    carryOut: (answer: (reply: Reply | Error) => void) => void,
  ): void {
    const fate = this.#next(request);
    if (fate instanceof Error) return tell(index, fate);
    carryOut((reply) => {
      if (fate === 0) tell(index, reply);
      else if (fate !== 'hang') setTimeout(() => tell(index, reply), fate);
    });
  }

  #answer<T>(request: Request, carryOut: () => Promise<T>): Promise<T> {
    const fate = this.#next(request);
    if (fate instanceof Error) return Promise.reject(fate);
    const reply = carryOut();
    if (fate === 'hang') return new Promise(() => {});
    return fate === 0 ? reply : new Promise((resolve) => setTimeout(() => resolve(reply), fate));
  }

  #next(request: Request): Fate {
    this.requests.push(request);
    return this.fate[request] ?? 0;
  }
}

/** Makes `count` scripted nodes with the names `a`, `b`, `c` and so on. */
export function scriptedNodes(count: number): ScriptedNode[] {
  return Array.from({ length: count }, (_, index) => new ScriptedNode(String.fromCharCode(97 + index)));
}
