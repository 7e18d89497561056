import { asError } from '../../core/errors.js';
import type { Lease } from '../../core/lease.js';
import type { Tell } from '../../core/ports.js';
import { chunkByKeys } from './chunk-by-keys.js';
import { mayConcernOne } from './connection/command-channel.js';
import type { RedisNode } from './redis-node.js';
import { nodeScripts } from './scripts/node-scripts.js';
import { splitBy } from './split-by.js';

/** Sends extensions to one node, and reads its answers. */
export class Extensions {
  constructor(private readonly node: RedisNode) {}

  /** Sends extensions; see `LockStore.extend`. */
  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    // The client is connected to the old master of a fail-over. The new master does not get these extensions, so the
    // locks expire there, perhaps before their validity ends here. So report at once that the locks are lost.
    if (this.node.channel.leadsToOldMaster) return leases.forEach((_, index) => tell(index, false));
    const mode = leases[0]?.kind.mode;
    if (leases.some(({ kind }) => kind.mode !== mode)) {
      return splitBy(
        leases,
        ({ kind }) => kind.mode === mode,
        tell,
        (some, told) => this.extend(some, ttl, told),
      );
    }
    let before = 0;
    for (const part of chunkByKeys(leases, (each) => each, this.node.isCluster)) {
      const first = before;
      before += part.length;
      this.#send(part, ttl, (index, reply) => tell(first + index, reply));
    }
  }

  #send(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    const { channel, context, channelBase } = this.node;
    const [lease] = leases;
    if (!lease) return;
    const { script, pack } = nodeScripts.of(lease).extend;
    // If the server does not know the script, its text is sent only while no lease has ended (S15). A lock that was taken back
    // by the thread that holds it is extended by that thread (S9).
    const wanted = (): boolean => leases.every(({ mayBeStored }) => mayBeStored);
    channel.run(script, pack(leases, ttl, context.keyPrefix, channelBase), wanted).then(
      (reply) => {
        for (let index = 0; index < leases.length; index++)
          tell(index, nodeScripts.extend.isExtended(reply, index));
      },
      (thrown: unknown) => {
        const error = asError(thrown);
        // The old master answered after the fail-over was noticed. The new master does not have this extension, so the
        // locks count as lost.
        const reply = channel.leadsToOldMaster ? false : error;
        const isOfOne = leases.length > 1 && mayConcernOne(error);
        leases.forEach((each, index) => {
          if (isOfOne && each.mayBeStored) this.#send([each], ttl, (_, alone) => tell(index, alone));
          else tell(index, reply);
        });
      },
    );
  }
}
