import 'reflect-metadata';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import type { INestApplication } from '@nestjs/common';
import { once } from 'node:events';
import {
  currentLock,
  Leader,
  type LeaderTerm,
  type LockHandle,
  LockService,
  type RedlockError,
  WithLock,
} from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';
import { FakeTransactions } from '../support/transactions.js';
import { until } from '../support/until.js';

/** Milliseconds. No lock expires by accident, even if the machine stalls for a moment. */
const TTL = 30_000;

const joining = { reentrant: true, retry: false, ttl: TTL } as const;

@Injectable()
class Service {
  leading: LockHandle | undefined;

  @WithLock('k', joining)
  async outer<T>(task: () => Promise<T>): Promise<T> {
    return task();
  }

  @WithLock('paid', { release: 'afterCommit', ttl: TTL })
  async pay(): Promise<LockHandle> {
    return currentLock('paid')!;
  }

  @Leader('consumer', { ttl: TTL })
  async lead({ signal }: LeaderTerm): Promise<void> {
    this.leading = currentLock();
    if (!signal.aborted) await once(signal, 'abort');
  }
}

describe('a lock that must stay with its call is not detached', () => {
  let app: INestApplication;
  let service: Service;
  let locks: LockService;
  let database: FakeTransactions;

  beforeEach(async () => {
    database = new FakeTransactions();
    app = await startApp({ providers: [Service] }, { nodes: 'memory', ...database.hooks });
    service = app.get(Service);
    locks = app.get(LockService);
  });
  afterEach(() => app.close());

  /** Returns the reason for which the lock is not detached. Its handle then still holds it. */
  async function refusalOf(lock: LockHandle): Promise<string> {
    const refused = (await lock.detach().catch((thrown: unknown) => thrown)) as RedlockError;
    expect([refused.code, lock.isHeld()]).toEqual(['LOCK_NOT_DETACHED', true]);
    const { held, owner } = await locks.inspect(lock.keys[0]!);
    expect([held, owner]).toEqual([true, expect.not.stringContaining('detached')]);
    return refused.message;
  }

  test('neither by a nested call that has joined it, nor by the outer call meanwhile', async () => {
    await service.outer(async () => {
      const outer = currentLock('k')!;
      await locks.withLock('k', joining, async (joined) => {
        expect(await refusalOf(joined)).toContain(
          'the outer call goes on to use it. Detach it in the outer call',
        );
        expect(await refusalOf(outer)).toContain(
          'a nested call has joined it. Detach it when the nested call has ended',
        );
      });
      const pass = await outer.detach();
      await (await locks.attach(pass)).release();
    });
  });

  test('while it waits for the commit', async () => {
    let kept: LockHandle | undefined;
    await database.run(async () => {
      kept = await service.pay();
      expect(await refusalOf(kept)).toContain('it is kept until the transaction around it has ended');
    });
    await until(() => kept?.isHeld() === false);
  });

  test('when it is the lock of a leader', async () => {
    await until(() => service.leading !== undefined);
    expect(await refusalOf(service.leading!)).toContain(
      'it is the lock of a leader, which ends when its method returns',
    );
  });
});
