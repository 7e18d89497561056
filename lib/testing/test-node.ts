import { MemoryStore } from '../stores/memory/memory-store.js';
import type { Lease } from '../core/lease.js';
import type { AcquireReply, AcquireTerms } from '../core/ports.js';
import type { Fault, NodeRequest } from './fault.js';

/** A node in memory that can be told to fail, to be slow, and to forget a key. */
export class TestNode extends MemoryStore {
  /** What each key was granted to last. */
  readonly #granted = new Map<string, Lease>();

  constructor(private readonly faults: ReadonlySet<Fault> = new Set()) {
    super();
  }

  override acquire(claim: Lease, terms: AcquireTerms): Promise<AcquireReply> {
    return this.#answer('acquire', claim, async () => {
      const reply = await super.acquire(claim, terms);
      if (reply.granted) for (const key of claim.keys) this.#granted.set(key, claim);
      return reply;
    });
  }

  override extend(claims: readonly Lease[], ttl: number): readonly Promise<boolean>[] {
    return claims.map((claim) =>
      this.#answer('extend', claim, async () => {
        const [extended] = super.extend([claim], ttl);
        return extended ?? false;
      }),
    );
  }

  override release(claim: Lease, after?: number): Promise<void> {
    return this.#answer('release', claim, () => super.release(claim, after));
  }

  /** Applications come and go in a test; the node stays, as Redis does. */
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

  /** Drops everything but the fencing counters. */
  dropAll(): void {
    this.#granted.clear();
    void super.close();
  }

  /** As on a real connection, a request whose reply is slow has been carried out. */
  async #answer<T>(request: NodeRequest, { keys }: Lease, carryOut: () => Promise<T>): Promise<T> {
    const faults = [...this.faults].filter((fault) => fault.concerns(request, keys));
    const error = faults.find((fault) => fault.error)?.error;
    if (error) throw error;
    const reply = carryOut();
    const delay = Math.max(0, ...faults.map((fault) => fault.delay ?? 0));
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay).unref());
    return reply;
  }
}
