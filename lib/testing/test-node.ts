import type { Lease } from '../core/lease.js';
import type { AcquireReply, AcquireRequest, ReleaseRequest, Tell } from '../core/ports.js';
import { MemoryStore } from '../stores/memory/memory-store.js';
import type { Fault, NodeRequest } from './fault.js';

/** A store in memory that can be told to fail, to be slow, and to forget a key. */
export class TestNode extends MemoryStore {
  /** What each key was granted to last. */
  readonly #granted = new Map<string, Lease>();

  constructor(private readonly faults: ReadonlySet<Fault> = new Set()) {
    super();
  }

  override acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    for (const [index, request] of requests.entries()) {
      const { lease } = request;
      this.#answer<AcquireReply>('acquire', lease, tell, index, (answer) =>
        super.acquire([request], ordered, (_, reply) => {
          if (!(reply instanceof Error) && reply.granted)
            for (const key of lease.keys) this.#granted.set(key, lease);
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

  override release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    for (const [index, request] of requests.entries()) {
      this.#answer<undefined>('release', request.lease, tell, index, (answer) =>
        super.release([request], (_, reply) => answer(reply)),
      );
    }
  }

  /** Applications come and go in a test; the store stays, as Redis does. */
  override close(): Promise<void> {
    return Promise.resolve();
  }

  /**
   * Drops a key with all that were locked together with it, as if it had never been written.
   * @returns whether it was there
   */
  drop(key: string): boolean {
    const before = this.size;
    const { keys, id } = this.#granted.get(key) ?? { keys: [], id: '' };
    // At once: in memory, only the answer takes a turn.
    for (const each of keys) void super.forceRelease(each, [id]);
    this.#granted.delete(key);
    return this.size < before;
  }

  /** Drops everything. */
  dropAll(): void {
    this.#granted.clear();
    void super.close();
  }

  /** As on a real connection, a request whose reply is slow has been carried out. */
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
