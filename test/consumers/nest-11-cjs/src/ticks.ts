import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import * as schedule6 from '@nestjs/schedule';
import { RedlockModule, WithLock } from 'nestjs-redlock';
import * as schedule5 from 'schedule-5';

/** How often one tick runs on two instances that fire for it, with each version of @nestjs/schedule for NestJS 11. */
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
  // The locks of two versions must not be in each other's way.
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
  // Not fireOnTick() of the job, which in one of the versions does not wait for what it calls.
  for (const app of [one, two]) await app.get(Yearly).run();
  await one.close();
  await two.close();
  return runs;
}
