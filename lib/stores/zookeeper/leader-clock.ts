import { neutrally } from '../../core/neutral.js';
import { ANY_VERSION, setData, type NodeStat } from './client/requests.js';
import type { ZooKeeperClient } from './client/zookeeper-client.js';
import type { StoredAt } from './key-record.js';
import { CLOCK } from './names.js';

/** Time limit in milliseconds for a reading. */
const LIMIT_MS = 2_000;

/** The leader's clock at a write of this process. */
export interface ClockReading extends StoredAt {
  /** Milliseconds by which the wall clock of this process differed from the leader's at most. */
  readonly error: number;
  /** The number of the write among all writes of the ensemble. */
  readonly transaction: bigint;
}

/** The moment of the write that made this state of a node. */
export function storedAtOf({ modified, mtime }: NodeStat): StoredAt {
  return { epoch: Number(modified >> 32n), time: mtime };
}

/** Reads the leader's clock: the time of a write is the only time that ZooKeeper tells. */
export class LeaderClock {
  /** The last reading. */
  latest: ClockReading | undefined;
  #reading: Promise<void> | undefined;

  constructor(private readonly client: ZooKeeperClient) {}

  /** Reads the clock for all callers that ask at the same time. Without an answer {@link latest} stays. */
  read(): Promise<void> {
    // One reading serves several callers, so it runs in the context of none of them (S30).
    this.#reading ??= neutrally(() => this.#ask().finally(() => (this.#reading = undefined)));
    return this.#reading;
  }

  async #ask(): Promise<void> {
    const asked = Date.now();
    try {
      const stat = await this.client.ask(setData(CLOCK, Buffer.alloc(0), ANY_VERSION), LIMIT_MS);
      const stored = storedAtOf(stat);
      const error = Math.max(Math.abs(stored.time - asked), Math.abs(Date.now() - stored.time));
      this.latest = { ...stored, error, transaction: stat.modified };
    } catch {
      // The lock of the holder counts as held, until this process has watched it for its ttl.
    }
  }
}
