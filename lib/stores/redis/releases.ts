import { asError } from '../../core/errors.js';
import type { Lease } from '../../core/lease.js';
import { MOST_PENDING_RELEASES, PendingReleases } from '../../core/pending-releases.js';
import type { ReleaseRequest, Tell } from '../../core/ports.js';
import type { Acquisitions } from './acquisitions.js';
import { chunkByKeys } from './chunk-by-keys.js';
import { isRefusal, mayConcernOne } from './connection/command-channel.js';
import { MovingSlotError } from './connection/moving-slot.js';
import type { RedisNode } from './redis-node.js';
import { nodeScripts } from './scripts/node-scripts.js';
import { SecondReleases } from './second-releases.js';
import { splitBy } from './split-by.js';

/** Sends releases to one node, and repeats them until the node has confirmed. */
export class Releases {
  /**
   * Failed releases, each with the time of its first failure. They are sent again when the node is connected again, and
   * some time after a failure: a server may refuse releases for a while without closing the connection (MISCONF,
   * NOREPLICAS, BUSY). A lease must be released even if its acquisition failed: a command whose reply was lost may have
   * stored the lease (S6). The times are from `performance.now()`: a wall clock that is set forward would make the
   * releases seem too old, and they would be dropped.
   */
  readonly #pending = new PendingReleases<number>(() => this.sendPending(), MOST_PENDING_RELEASES);
  readonly #second: SecondReleases;

  constructor(
    private readonly node: RedisNode,
    private readonly acquisitions: Acquisitions,
  ) {
    this.#second = new SecondReleases(
      node,
      (lease) =>
        new Promise((resolve) => {
          this.#send([{ lease, pause: 0, isSecond: true }], (_, error) => resolve(!error));
        }),
    );
  }

  /** Sends releases; see `LockStore.release`. */
  release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    const mode = requests[0]?.lease.kind.mode;
    if (requests.some(({ lease }) => lease.kind.mode !== mode)) {
      return splitBy(
        requests,
        ({ lease }) => lease.kind.mode === mode,
        tell,
        (some, told) => this.release(some, told),
      );
    }
    let before = 0;
    for (const part of chunkByKeys(requests, ({ lease }) => lease, this.node.isCluster)) {
      const first = before;
      before += part.length;
      this.#send(part, (index, reply) => {
        const request = part[index] as ReleaseRequest;
        // The release was sent at once, because the process may end before the acquisition is answered (S6). If the
        // acquisition has no answer yet, send the release again after that answer.
        const isKept = this.acquisitions.whenAnswered(request.lease, () =>
          this.#send([request], (_, again) => tell(first + index, again)),
        );
        if (!isKept) tell(first + index, reply);
      });
    }
  }

  /** Sends all pending releases. A release that fails again stays pending. */
  sendPending(): void {
    for (const [lease, since] of this.#pending) {
      if (performance.now() - since > lease.pendingFor) this.#pending.delete(lease);
      else if (this.node.channel.canSend) this.#send([{ lease, pause: 0 }], () => undefined);
      else return this.#pending.later();
    }
  }

  /**
   * Records that the node may still store the lease until `deadline` on its clock, although no answer will come. If the
   * lease has ended by then, it is released once more (S27).
   */
  mayComeLater(lease: Lease, deadline: number): void {
    this.#second.mayComeLater(lease, deadline);
  }

  close(): void {
    this.#pending.close();
    this.#second.close();
  }

  #send(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    const { channel, context, channelBase } = this.node;
    const { script, pack } = nodeScripts.of((requests as [ReleaseRequest])[0].lease).release;
    channel.run(script, pack(requests, context.keyPrefix, channelBase)).then(
      (answer) => {
        for (let index = 0; index < requests.length; index++) {
          const request = requests[index] as ReleaseRequest;
          tell(index, this.#take(request, nodeScripts.release.answer(answer, index)));
        }
      },
      (thrown: unknown) => {
        const error = asError(thrown);
        const { lease } = requests[0] as ReleaseRequest;
        if (error instanceof MovingSlotError && lease.kind.mode === 'exclusive')
          return this.#sendWithoutQueue(requests[0] as ReleaseRequest, (reply) => tell(0, reply));
        const isOfOne = requests.length > 1 && mayConcernOne(error);
        requests.forEach((request, index) => {
          if (isOfOne) this.#send([request], (_, reply) => tell(index, reply));
          else tell(index, this.#failed(request, error));
        });
      },
    );
  }

  /**
   * Releases an exclusive lease whose hash slot moves to another master of the Cluster. Its queue may be on another server
   * than its records, so a second command wakes the waiters. If that command fails, they ask by themselves later.
   */
  #sendWithoutQueue(request: ReleaseRequest, tell: (reply: Error | undefined) => void): void {
    const { channel, context } = this.node;
    const { lease } = request;
    const { release, wakeWaiters } = nodeScripts;
    const { script, pack, leftWaiters } = release.withoutQueue;
    channel.run(script, pack(request, context.keyPrefix)).then(
      (reply) => {
        tell(this.#take(request, release.answer(reply, 0)));
        if (!leftWaiters(reply)) return;
        for (const key of lease.keys)
          channel
            .run(wakeWaiters.script, wakeWaiters.pack(key, request, context.keyPrefix))
            .catch(() => undefined);
      },
      (error: unknown) => tell(this.#failed(request, asError(error))),
    );
  }

  #take(request: ReleaseRequest, answer: unknown): Error | undefined {
    const { lease, isSecond } = request;
    if (answer instanceof Error) return this.#failed(request, this.node.channel.explained(answer));
    if (Number(answer) > 0) this.node.waiters.note(lease.keys);
    // A second release stores no tick, so it does not take the place of a pending release.
    if (isSecond !== true) this.#pending.delete(lease);
    return undefined;
  }

  #failed({ lease, isSecond }: ReleaseRequest, error: Error): Error {
    if (isSecond !== true) {
      if (!this.#pending.has(lease)) this.#pending.set(lease, performance.now());
      this.#pending.later();
    }
    if (isRefusal(error)) {
      const { name, context } = this.node;
      context.warnOnce(`${name} refuses to release locks, so they end only with their ttl: ${error.message}`);
    }
    return error;
  }
}
