import { Test, type TestingModule } from '@nestjs/testing';
import { LockHeldError, LockService, RedlockModule } from 'nestjs-redlock';
import { expectLocked, RedlockTestingModule, TestLocks } from 'nestjs-redlock/testing';
import { AppModule } from './app.module.js';
import { ReportsService, type Report } from './reports.service.js';

// A busy machine may take longer than the default of five seconds.
vi.setConfig({ testTimeout: 60_000 });

const weekly = { name: 'weekly', keys: ['report:weekly'], held: true };

describe('ReportsService', () => {
  let moduleRef: TestingModule;

  afterEach(() => moduleRef.close());

  it('builds a report once, with locks in memory', async () => {
    moduleRef = await Test.createTestingModule({
      imports: [RedlockModule.forRoot({ nodes: 'memory' })],
      providers: [ReportsService],
    }).compile();
    expect(await buildTwiceAtOnce(moduleRef.get(ReportsService))).toEqual([weekly]);
  });

  it('loses a lock without renewal when fake timers have advanced by the ttl of the lock', async () => {
    vi.useFakeTimers();
    const locks = new TestLocks({ wait: false });
    moduleRef = await Test.createTestingModule({
      imports: [RedlockTestingModule.forRoot({ locks })],
    }).compile();
    const service = moduleRef.get(LockService);
    const lock = await service.acquire('a', { ttl: 10_000, renew: false });
    await vi.advanceTimersByTimeAsync(9_000);
    await expect(service.acquire('a')).rejects.toBeInstanceOf(LockHeldError);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(lock.signal.aborted).toBe(true);
    expectLocked(locks, 'a', { state: 'lost', ttl: 10_000 });
    vi.useRealTimers();
  });

  it('builds a report once, with locks in Redis', async () => {
    moduleRef = await Test.createTestingModule({ imports: [AppModule] }).compile();
    await moduleRef.init();
    expect(await buildTwiceAtOnce(moduleRef.get(ReportsService))).toEqual([weekly]);
  });
});

async function buildTwiceAtOnce(reports: ReportsService): Promise<(Report | undefined)[]> {
  const results = await Promise.all([reports.build('weekly'), reports.build('weekly')]);
  return results.filter((result) => result !== undefined);
}
