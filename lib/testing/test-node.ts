import type { Lease } from '../core/lease.js';
import type { AcquireReply, AcquireRequest, ExchangeRequest, ReleaseRequest, Tell } from '../core/ports.js';
import { MemoryStore } from '../stores/memory/memory-store.js';
import type { Fault, NodeRequest } from './fault.js';

/** A store in memory that a test can make fail, be slow, or forget a key. */
export class TestNode extends MemoryStore {
  /** The leases that got a key and have not released it, by that key. */
  readonly #granted = new Map<string, Set<Lease>>();

  constructor(private readonly faults: ReadonlySet<Fault> = new Set()) {
    super();
  }

  override acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    for (const [index, request] of requests.entries()) {
      const { lease } = request;
      this.#answer<AcquireReply>('acquire', lease, tell, index, (answer) =>
        super.acquire([request], ordered, (_, reply) => {
          if (!(reply instanceof Error) && reply.granted) this.#note(lease);
          answer(reply);
        }),
      );
    }
  }

  override extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    for (const [index, lease] of leases.entries()) {
      this.#answer<boolean>('extend', lease, tell, index, (answer) =>
        super.extend([lease], ttl, (_, reply) => answer(reply)),
      );
    }
  }

  override exchange(request: ExchangeRequest): Promise<boolean> {
    const { lease, replaces } = request;
    return new Promise((resolve, reject) => {
      const tell: Tell<boolean> = (_, reply) => (reply instanceof Error ? reject(reply) : resolve(reply));
      this.#answer<boolean>('acquire', lease, tell, 0, (answer) => {
        super.exchange(request).then((isExchanged) => {
          if (isExchanged) this.#replace(lease, replaces);
          answer(isExchanged);
        }, answer);
      });
    });
  }

  override release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    for (const [index, request] of requests.entries()) {
      const { lease } = request;
      this.#answer<undefined>('release', lease, tell, index, (answer) => {
        if (lease.keepFor === 0) this.#forget(lease);
        super.release([request], (_, reply) => answer(reply));
      });
    }
  }

  /** Does nothing: several applications of a test can use the store one after the other, like a Redis. */
  override close(): Promise<void> {
    return Promise.resolve();
  }

  /**
   * Drops a key, and all keys that were locked together with it, as if they had never been written.
   *
   * @param id - the id of one holder; by default all holders
   * @returns `true` if the key was held
   */
  drop(key: string, id?: string): boolean {
    const leases = [...(this.#granted.get(key) ?? [])].filter((lease) => id === undefined || lease.id === id);
    let ended = 0;
    for (const lease of leases) {
      for (const each of lease.keys) ended += this.endHolders(each, [lease.id]).length;
      this.#forget(lease);
    }
    return ended > 0;
  }

  /** Drops all locks, and all records of ticks that have run. */
  dropAll(): void {
    this.#granted.clear();
    void super.close();
  }

  #note(lease: Lease): void {
    for (const key of lease.keys) {
      // All earlier holders have expired when an exclusive lease is granted, because otherwise the grant would have
      // failed.
      const others = lease.kind.mode === 'exclusive' ? undefined : this.#granted.get(key);
      this.#granted.set(key, (others ?? new Set()).add(lease));
    }
  }

  #replace(lease: Lease, ids: readonly string[]): void {
    const [key = ''] = lease.keys;
    for (const each of [...(this.#granted.get(key) ?? [])]) if (ids.includes(each.id)) this.#forget(each);
    for (const each of lease.keys) this.#granted.set(each, (this.#granted.get(each) ?? new Set()).add(lease));
  }

  #forget(lease: Lease): void {
    for (const key of lease.keys) {
      const leases = this.#granted.get(key);
      leases?.delete(lease);
      if (leases?.size === 0) this.#granted.delete(key);
    }
  }

  /**
   * Answers a request with the faults of the test. As on a real connection, a request takes effect immediately, even if
   * its reply is slow.
   */
  #answer<Reply>(
    request: NodeRequest,
    { keys }: Lease,
    tell: Tell<Reply>,
    index: number,
    carryOut: (answer: (reply: Reply | Error) => void) => void,
  ): void {
    const faults = [...this.faults].filter((fault) => fault.concerns(request, keys));
    const error = faults.find((fault) => fault.error)?.error;
    if (error) return tell(index, error);
    const delay = Math.max(0, ...faults.map((fault) => fault.delay ?? 0));
    carryOut((reply) => {
      if (delay === 0) tell(index, reply);
      else setTimeout(() => tell(index, reply), delay).unref();
    });
  }
}
