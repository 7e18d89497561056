import { ForeignValueError } from '../../core/errors.js';
import type { LockMode } from '../../core/lock-mode.js';

/** The moment of a write, by the clock of the leader that stored it. */
export interface StoredAt {
  /** The number of the leader's term. */
  readonly epoch: number;
  /** Milliseconds since 1970. */
  readonly time: number;
}

/** A holder of a key, as ZooKeeper stores it. */
export interface HolderRecord {
  readonly id: string;
  readonly token: number;
  /** The number of renewals. Together with the id and the token it is the stamp of one write of the holder. */
  readonly renewals: number;
  readonly owner: string;
  /** The time of the request that was granted, by the holder's clock. */
  readonly since: number;
  /** The time at which the holder sent this stamp, by its clock. */
  readonly sentAt: number;
  /** The write that stored this stamp; missing in the version of the node that this write has made. */
  readonly storedAt?: StoredAt | undefined;
  /** Milliseconds for which the holder trusts the lock, from the moment at which it sent this stamp. */
  readonly ttl: number;
  readonly mode: LockMode;
  readonly slot?: number;
  /** The number of permits that the holder asked for. */
  readonly permits?: number;
  /** `true` after the release, while `minHold` keeps the key. */
  readonly kept?: true;
}

/** The tick of a schedule that has run last. */
export interface TickRecord {
  readonly at: number;
  readonly owner: string;
  /** The end of the record by the clock of the process that ran the tick, in milliseconds since 1970. */
  readonly until: number;
}

/** All that ZooKeeper stores of a key. */
export interface KeyRecord {
  /** The largest token that was granted. */
  readonly token: number;
  readonly holders: readonly HolderRecord[];
  readonly ticks: Readonly<Record<string, TickRecord>>;
  /** The id of the lock that was released last. */
  readonly ended?: string;
}

/** The record of a key that has no node. */
export const NO_RECORD: KeyRecord = { token: 0, holders: [], ticks: {} };

export function dataOf(record: KeyRecord): Buffer {
  return Buffer.from(JSON.stringify(record));
}

/** @throws ForeignValueError when another program has written the data */
export function recordOf(path: string, data: Buffer): KeyRecord {
  let record: unknown;
  try {
    record = JSON.parse(data.toString());
  } catch {
    throw foreign(path);
  }
  if (!isRecord(record)) throw foreign(path);
  return record;
}

function isRecord(record: unknown): record is KeyRecord {
  if (typeof record !== 'object' || record === null) return false;
  const { token, holders, ticks } = record as Partial<KeyRecord>;
  return Number.isSafeInteger(token) && Array.isArray(holders) && typeof ticks === 'object' && ticks !== null;
}

function foreign(path: string): ForeignValueError {
  return new ForeignValueError(
    `the node ${path} has data of another program; delete it, or give a path of its own behind the servers of ` +
      '`connectionString`',
  );
}
