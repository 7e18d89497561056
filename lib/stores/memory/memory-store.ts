import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import type { NodeCheck } from '../../core/node-status.js';
import type {
  AcquireReply,
  AcquireRequest,
  ExchangeRequest,
  KeyState,
  KeyWaiter,
  LeaseExchange,
  LockDirectory,
  LockStore,
  QueueDirectory,
  QuorumStore,
  ReleaseRequest,
  StarvationGuard,
  StoreHealth,
  Subscription,
  Tell,
  WaitQueue,
} from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { MemoryNode } from './memory-node.js';

/** The number of keys in a page of a scan. */
const PAGE = 500;

/** Keeps locks inside this process; they behave as in Redis. Other processes do not see these locks. */
export class MemoryStore
  implements
    LockStore,
    WaitQueue,
    StarvationGuard,
    LockDirectory,
    QueueDirectory,
    QuorumStore,
    LeaseExchange,
    StoreHealth
{
  readonly name = 'memory';
  readonly #node = new MemoryNode();
  readonly modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];
  readonly available = true;
  readonly subscribed = true;

  /** The number of held keys. */
  get size(): number {
    return this.#node.size;
  }

  connect(): Promise<void> {
    return Promise.resolve();
  }

  contended(): boolean {
    return false;
  }

  time(): number {
    return Date.now();
  }

  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    requests.forEach((request, index) => tell(index, this.#node.acquire(request, ordered)));
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    leases.forEach((lease, index) => tell(index, this.#node.extend(lease, ttl)));
  }

  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    requests.forEach((request, index) => {
      this.#node.release(request);
      tell(index, undefined);
    });
  }

  exchange(request: ExchangeRequest): Promise<boolean> {
    if (request.limit <= 0) return Promise.reject(new Error('the request came after its time limit'));
    return Promise.resolve(this.#node.exchange(request));
  }

  raise(lease: Lease, token: number): Promise<boolean> {
    return Promise.resolve(this.#node.raise(lease, token));
  }

  listen(
    waiter: WaiterId,
    onMessage: (after: number, turn: boolean, released?: string) => void,
  ): Subscription {
    return this.#node.listen(waiter, onMessage);
  }

  holdBack(waiter: WaiterId, waited: number): Promise<boolean> {
    return Promise.resolve(this.#node.holdBack(waiter, waited));
  }

  letPass(waiter: WaiterId): Promise<void> {
    this.#node.letPass(waiter);
    return Promise.resolve();
  }

  leave(waiter: WaiterId): Promise<void> {
    this.#node.leave(waiter);
    return Promise.resolve();
  }

  read(keys: readonly string[]): Promise<readonly KeyState[]> {
    return Promise.resolve(keys.map((key) => this.#node.read(key)));
  }

  waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    return Promise.resolve(keys.map((key) => this.#node.waiting(key)));
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    let page: string[] = [];
    // The locks may change between two pages. That does no harm, because a Map may change while it is iterated.
    for (const key of this.#node.keys) {
      if (key.startsWith(prefix)) page.push(key);
      if (page.length < PAGE) continue;
      yield page;
      page = [];
    }
    yield page;
  }

  forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    return Promise.resolve(this.endHolders(key, ids));
  }

  check(): Promise<NodeCheck> {
    return Promise.resolve({ state: 'voting', warnings: [] });
  }

  close(): Promise<void> {
    this.#node.clear();
    return Promise.resolve();
  }

  /** Releases the key by force for the holders with these ids. Returns the ids for which the key was held. */
  protected endHolders(key: string, ids: readonly string[]): readonly string[] {
    return this.#node.forceRelease(key, ids);
  }
}
