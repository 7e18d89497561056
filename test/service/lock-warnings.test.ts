import { afterEach, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { LockHeldError, LockService, outside, WithLock } from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

class Nested {
  constructor(readonly locks: LockService) {}

  @WithLock('outer')
  async outer(task: () => unknown): Promise<void> {
    await task();
  }

  @WithLock('outer', { retry: { timeout: 1_000 } })
  async inner(): Promise<string> {
    return 'inner';
  }

  @WithLock('outer', { retry: false })
  async innerOnce(): Promise<void> {}

  @WithLock('outer', { reentrant: true })
  async joining(): Promise<void> {}
}

let app: INestApplication | undefined;
let log: LogLines;
afterEach(async () => {
  await app?.close();
});

async function start(): Promise<Nested> {
  log = new LogLines();
  const provider = {
    provide: Nested,
    useFactory: (locks: LockService) => new Nested(locks),
    inject: [LockService],
  };
  app = await startApp({ providers: [provider] }, { nodes: 'memory' }, { logger: log });
  return app.get(Nested);
}

function warnings(): string[] {
  return log.of('warn').filter((line) => !line.startsWith("nodes: 'memory'"));
}

describe('a call under a lock for which it waits', () => {
  test('is warned of while it still waits, and gets the lock when the other method does not await it', async () => {
    const nested = await start();
    let inner: Promise<string> | undefined;
    await nested.outer(async () => {
      inner = nested.inner();
      await until(async () => warnings().length > 0);
      expect(nested.locks.current('outer')?.isHeld()).toBe(true);
    });
    await expect(inner).resolves.toBe('inner');
    expect(warnings()).toEqual([
      'Nested.inner is called under a lock of "outer", and waits until that lock ends. If the code under the lock awaits the ' +
        'call, the call waits for itself and fails. Give the nested call `reentrant: true`, or lock in one of the two places; ' +
        'if nobody awaits it, start it with `outside`. The warning comes once.',
    ]);
  });

  test('is warned of once for each method', async () => {
    const nested = await start();
    const failing = (): Promise<void> => nested.outer(() => nested.inner());
    await expect(failing()).rejects.toBeInstanceOf(LockHeldError);
    await expect(failing()).rejects.toBeInstanceOf(LockHeldError);
    expect(warnings()).toHaveLength(1);
  });

  test('is not warned of when it makes one attempt, joins the lock, or is started outside', async () => {
    const nested = await start();
    await nested.outer(async () => {
      await nested.innerOnce().catch(() => undefined);
      await nested.joining();
    });
    let inner: Promise<string> | undefined;
    await nested.outer(async () => {
      inner = outside(() => nested.inner());
    });
    await inner;
    expect(warnings()).toEqual([]);
  });
});

describe('a ttl below a second', () => {
  test('is warned of once, with the caller', async () => {
    const { locks } = await start();
    await locks.withLock('a', { ttl: 999 }, () => undefined);
    await locks.withLock('b', { ttl: 999 }, () => undefined);
    await locks.withLock('c', { ttl: 1_000 }, () => undefined);
    expect(warnings()).toEqual([
      'LockService (label "other") locks with `ttl: 999`: below 1000 ms, a usual pause of the process or of the network loses ' +
        'the lock. Give a longer `ttl`; it does not limit the method, because the lock is renewed. The warning comes once.',
    ]);
  });
});
