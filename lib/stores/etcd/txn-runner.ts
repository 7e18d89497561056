import type { Gateway } from './gateway.js';
import { revisionOf, type Txn, type TxnReply } from './protocol.js';

/** The revision of the cluster is smaller than before. */
export class RevisionWentBackError extends Error {
  constructor() {
    super(
      'the revision of the cluster has gone back, as after the restore of an older backup: ' +
        'held locks may be forgotten, and tokens are raised above all earlier tokens',
    );
  }
}

/** Runs transactions. All of them are linearizable, even if they only read. */
export class TxnRunner {
  /** The largest revision of the cluster that this process has seen. */
  #latest = 0;
  /**
   * The largest revision before the revision of the cluster went back; set until the base of tokens is raised above it.
   * Until then requests are refused: with the old base they would grant tokens that were granted before (S7).
   */
  wentBackFrom: number | undefined;
  /**
   * Called when the revision has gone back, and again for each transaction that is refused until the base is raised.
   */
  onWentBack: () => void = () => undefined;

  constructor(private readonly gateway: Gateway) {}

  /**
   * @param once - `true` if the transaction must not be executed twice
   * @throws GatewayError or RevisionWentBackError
   */
  async run(txn: Txn, limit: number, once = false): Promise<TxnReply> {
    const seen = this.#latest;
    const reply = await this.runAnyway(txn, limit, once);
    const revision = revisionOf(reply.header);
    // Another transaction may have noticed the smaller revision first.
    const before = Math.max(seen, this.wentBackFrom ?? 0);
    if (revision < before) {
      this.wentBackFrom = before;
      this.#latest = 0;
      this.onWentBack();
      throw new RevisionWentBackError();
    }
    this.#latest = Math.max(this.#latest, revision);
    return reply;
  }

  /** Runs a transaction even if the revision of the cluster is smaller than before. */
  async runAnyway(txn: Txn, limit: number, once = false): Promise<TxnReply> {
    const { reply } = await this.gateway.call<TxnReply>('kv/txn', txn, limit, { once });
    return reply;
  }
}
