import { afterEach, expect, test } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Cron } from '@nestjs/schedule';
import { Test, type TestingModule } from '@nestjs/testing';
import { WithLock } from '../../lib/index.js';
import { RedlockTestingModule, TestLocks } from '../../lib/testing/index.js';

@Injectable()
class Reports {
  @Cron('0 3 * * *', { timeZone: 'UTC' })
  @WithLock('report', { oncePerTick: true })
  async send(): Promise<string | undefined> {
    return 'sent';
  }
}

let module: TestingModule;
afterEach(() => module.close());

test('without `ScheduleModule`, a `@Cron` method with `oncePerTick` runs at each call, unless its key is held', async () => {
  const locks = new TestLocks({ wait: false });
  module = await Test.createTestingModule({
    imports: [RedlockTestingModule.forRoot({ locks })],
    providers: [Reports],
  }).compile();
  await module.init();
  const reports = module.get(Reports);
  expect([await reports.send(), await reports.send()]).toEqual(['sent', 'sent']);
  await locks.hold('report');
  expect(await reports.send()).toBeUndefined();
});
