import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { currentLock, LockHeldError, LockService, WithLock } from 'nestjs-redlock';

export interface Report {
  name: string;
  keys: readonly string[];
  held: boolean;
}

@Injectable()
export class ReportsService {
  constructor(private readonly locks: LockService) {}

  @WithLock((name: string) => `report:${name}`, { ttl: 30_000, onBusy: 'skip' })
  async build(name: string): Promise<Report | undefined> {
    const lock = currentLock();
    await sleep(100);
    return { name, keys: lock?.keys ?? [], held: lock?.isHeld() ?? false };
  }

  /** Blocks the event loop for longer than the ttl. Returns whether the lock was kept. */
  @WithLock('report:blocked', { ttl: 3_000, renew: 'thread' })
  async block(): Promise<boolean> {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4_000);
    return currentLock()?.isHeld() ?? false;
  }

  /** Returns the outcome of a second call for a held key, and of a third call after the release. */
  async takeTwice(key: string): Promise<{ second: string; error: string; third: string }> {
    const first = await this.locks.acquire(key, { ttl: 30_000 });
    const second = await this.locks.tryAcquire(key);
    const error: unknown = await this.locks.acquire(key, { retry: false }).catch((reason: unknown) => reason);
    await first.release();
    const third = await this.locks.withLock(key, (lock) => lock.isHeld());
    return {
      second: second === null ? 'refused' : 'taken',
      error: error instanceof LockHeldError ? error.code : String(error),
      third: third ? 'taken' : 'lost',
    };
  }
}
