import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import * as schedule6 from '@nestjs/schedule';
import { RedlockModule, WithLock } from 'nestjs-redlock';
import * as schedule5 from 'schedule-5';

/** Counts the runs of one tick on two instances, with each version of @nestjs/schedule for NestJS 11. */
export async function runsOfTicks(): Promise<Record<string, number>> {
  return { 'schedule 5': await runsOfTick(schedule5), 'schedule 6': await runsOfTick(schedule6) };
}

async function runsOfTick({ Cron, ScheduleModule }: typeof schedule5 | typeof schedule6): Promise<number> {
  let runs = 0;

  @Injectable()
  class Yearly {
    @Cron('0 0 0 1 1 *', { timeZone: 'UTC' })
    @WithLock('yearly', { oncePerTick: true })
    async run(): Promise<void> {
      runs++;
    }
  }

  const nodes = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
  // Each version has keys of its own.
  const keyPrefix = `ticks:${process.pid}:${Cron === schedule5.Cron ? 5 : 6}:`;

  @Module({
    imports: [ScheduleModule.forRoot(), RedlockModule.forRoot({ nodes, nodeTimeout: 60_000, keyPrefix })],
    providers: [Yearly],
  })
  class TicksModule {}

  const options = { logger: ['error' as const] };
  const [one, two] = [
    await NestFactory.createApplicationContext(TicksModule, options),
    await NestFactory.createApplicationContext(TicksModule, options),
  ];
  // `fireOnTick()` of the job does not wait for the method in one of the versions, so the method is called directly.
  for (const app of [one, two]) await app.get(Yearly).run();
  await one.close();
  await two.close();
  return runs;
}
