import type { Arrivals } from './arrivals.js';
import type { Gateway } from './gateway.js';
import { revisionOf, type Txn, type TxnReply } from './protocol.js';

/** The cluster is at a smaller revision than before. */
export class RevisionWentBackError extends Error {
  constructor() {
    super(
      'the revision of the cluster has gone back, as after the restore of an older copy: ' +
        'locks that were held may be forgotten, and tokens are raised above those of before',
    );
  }
}

/** Runs transactions. They are linearizable, also those that only read. */
export class Transactions {
  /**
   * The largest revision that was seen before the cluster went back, until the base of tokens is raised above it.
   * Requests are refused meanwhile: with the former base they would give former tokens (S7).
   */
  wentBackFrom: number | undefined;
  /** Called when the revision has gone back, and again with each refusal until the base is raised. */
  onWentBack: () => void = () => undefined;

  constructor(
    private readonly gateway: Gateway,
    private readonly arrivals: Arrivals,
  ) {}

  /** @throws GatewayError or RevisionWentBackError */
  async run(txn: Txn, limit: number): Promise<TxnReply> {
    const seen = this.arrivals.latest;
    const reply = await this.runAnyway(txn, limit);
    const revision = revisionOf(reply.header);
    // Also when another transaction has noticed it meanwhile.
    const before = Math.max(seen, this.wentBackFrom ?? 0);
    if (revision < before) {
      this.wentBackFrom = before;
      this.arrivals.forget();
      this.onWentBack();
      throw new RevisionWentBackError();
    }
    this.arrivals.note(revision);
    return reply;
  }

  /** Runs it even if the cluster is at a smaller revision than before. */
  async runAnyway(txn: Txn, limit: number): Promise<TxnReply> {
    const { reply } = await this.gateway.call<TxnReply>('kv/txn', txn, limit);
    return reply;
  }
}
