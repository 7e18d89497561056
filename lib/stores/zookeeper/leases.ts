import type { Lease } from '../../core/lease.js';
import type { KeyView } from './key-view.js';

interface LeaseState {
  /** The last request for the lease. */
  asking?: Promise<unknown>;
  /** The token with which the lease was granted. */
  token?: number;
  /**
   * The version of each key with which a write compared that got no answer, `undefined` for a node to create. The write
   * may still come.
   */
  doubts?: ReadonlyMap<string, number | undefined>;
  isReleased?: true;
}

/** The leases of this process, as far as their requests were answered. */
export class Leases {
  readonly #states = new WeakMap<Lease, LeaseState>();

  /** Records a request for the lease: a release must not overtake it (S6). */
  asks(lease: Lease, answer: Promise<unknown>): void {
    this.#of(lease).asking = answer;
  }

  /** Resolves when no request for the lease is under way, whatever its result is. */
  async answered(lease: Lease): Promise<void> {
    await this.#of(lease).asking?.catch(() => undefined);
  }

  granted(lease: Lease, token: number): void {
    this.#of(lease).token = token;
  }

  /** Records that the lease holds none of its keys any more, but may be granted again: it asked for other slots. */
  movedOut(lease: Lease): void {
    delete this.#of(lease).token;
  }

  wasGranted(lease: Lease): boolean {
    return this.#of(lease).token !== undefined;
  }

  /** Records that a write of the lease may still come. */
  doubt(lease: Lease, compared: readonly KeyView[]): void {
    this.#of(lease).doubts = new Map(compared.map(({ key, version }) => [key, version]));
  }

  /** `true` if ZooKeeper may store the lease, or may still store it. */
  mayBeStored(lease: Lease): boolean {
    return this.wasGranted(lease) || this.#of(lease).doubts !== undefined;
  }

  /** `true` if a write of the lease that got no answer compares with this version of the key. */
  mayComeAt(lease: Lease, { key, version }: KeyView): boolean {
    const { doubts } = this.#of(lease);
    return doubts !== undefined && doubts.has(key) && doubts.get(key) === version;
  }

  release(lease: Lease): void {
    this.#of(lease).isReleased = true;
  }

  hasEnded(lease: Lease): boolean {
    return lease.ended || this.#of(lease).isReleased === true;
  }

  #of(lease: Lease): LeaseState {
    let state = this.#states.get(lease);
    if (!state) this.#states.set(lease, (state = {}));
    return state;
  }
}
