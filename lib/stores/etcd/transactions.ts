import type { Arrivals } from './arrivals.js';
import type { Gateway } from './gateway.js';
import { revisionOf, type Txn, type TxnReply } from './protocol.js';

/** The cluster is at a smaller revision than it was. */
export class RevisionWentBackError extends Error {
  constructor() {
    super(
      'the revision of the cluster has gone back, as after the restore of an older copy: ' +
        'locks that were held may be forgotten, and tokens are raised above those of before',
    );
  }
}

/** Runs transactions, which are linearizable also when they only look. */
export class Transactions {
  /**
   * The largest revision that was seen before the cluster went back, until the base of tokens is raised above it. Whoever asks
   * meanwhile is refused: what was begun with the base of before would give tokens of before (S7).
   */
  wentBackFrom: number | undefined;
  /** Called when it has gone back, and again with each refusal until the base is raised. */
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
    // Also where it was noticed while this one was under way.
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

  /** Also while the cluster is at a smaller revision than it was. */
  async runAnyway(txn: Txn, limit: number): Promise<TxnReply> {
    const { reply } = await this.gateway.call<TxnReply>('kv/txn', txn, limit);
    return reply;
  }
}
