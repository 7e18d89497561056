import type { Arrivals } from './arrivals.js';
import type { Gateway } from './gateway.js';
import { revisionOf, type Txn, type TxnReply } from './protocol.js';

/** The cluster is at a smaller revision than it was. */
export class RevisionWentBackError extends Error {
  /** @param before - the largest revision that was seen */
  constructor(readonly before: number) {
    super(
      'the revision of the cluster has gone back, as after the restore of an older copy: ' +
        'locks that were held may be forgotten, and tokens are raised above those of before',
    );
  }
}

/** Runs transactions, which are linearizable also when they only look. */
export class Transactions {
  constructor(
    private readonly gateway: Gateway,
    private readonly arrivals: Arrivals,
  ) {}

  /** @throws GatewayError or RevisionWentBackError */
  async run(txn: Txn, limit: number): Promise<TxnReply> {
    const before = this.arrivals.latest;
    const { reply } = await this.gateway.call<TxnReply>('kv/txn', txn, limit);
    const revision = revisionOf(reply.header);
    if (revision < before) {
      this.arrivals.forget();
      throw new RevisionWentBackError(before);
    }
    this.arrivals.note(revision);
    return reply;
  }
}
