import { Injectable } from '@nestjs/common';
import { Cron, CronExpression } from '@nestjs/schedule';
import { WithLock } from 'nestjs-redlock';

/** A job that every instance of the application schedules. */
@Injectable()
export class Cleanup {
  constructor(private readonly instance: string) {}

  /** Each tick runs on one instance. The other instances skip the tick. */
  @Cron(CronExpression.EVERY_SECOND)
  @WithLock('cleanup', { ttl: 5_000, oncePerTick: true })
  async removeExpired(): Promise<void> {
    console.log(`instance ${this.instance} ran the job`);
  }
}
