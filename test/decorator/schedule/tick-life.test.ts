import { describe, expect, test } from '@jest/globals';
import type { ModulesContainer } from '@nestjs/core';
import { CronTime } from 'cron';
import { Ticks } from '../../../lib/decorator/schedule/ticks.js';

const HOUR = 3_600_000;

/** Reads the life of the present tick of a schedule, in hours. */
function lifeOf(cronTime: string | Date): number {
  class Registry {
    getCronJobs(): Map<string, unknown> {
      return new Map([['job', { cronTime: new CronTime(cronTime, 'UTC') }]]);
    }
  }
  const providers = new Map([['registry', { metatype: Registry, instance: new Registry() }]]);
  const modules = new Map([['module', { providers }]]) as unknown as ModulesContainer;
  const options = { cronTime, name: 'job', timeZone: 'UTC' };
  return new Ticks(modules).of({ name: 'A.run', schedule: { kind: 'cron', options } })!.life / HOUR;
}

describe('nodes remember a tick until the next tick', () => {
  test.each([
    ['an hour', '0 0 * * * *', 1],
    ['a day', '0 0 9 * * *', 24],
    ['a week, so that an instance that was suspended for a day does not run it again', '0 0 9 * * 1', 7 * 24],
  ])('of %s', (_what, cron, hours) => {
    expect(lifeOf(cron)).toBeCloseTo(hours, 0);
  });

  test('of a schedule that fires once, at a date: for more than a year', () => {
    expect(lifeOf(new Date(Date.now() - 5))).toBeGreaterThan(366 * 24);
  });
});
