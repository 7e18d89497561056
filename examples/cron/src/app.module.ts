import { Module } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { RedlockModule } from 'nestjs-redlock';
import { Cleanup } from './cleanup.js';

@Module({
  imports: [
    ScheduleModule.forRoot(),
    // With 'memory', locks exclude other calls in this process only. With REDIS_URL, they exclude calls in all
    // processes that use that Redis.
    RedlockModule.forRoot({ nodes: process.env['REDIS_URL'] ?? 'memory' }),
  ],
  // These two providers stand for two instances of an application. Your application needs only one provider.
  providers: ['A', 'B'].map((name) => ({
    provide: `instance ${name}`,
    useFactory: () => new Cleanup(`${name} of process ${process.pid}`),
  })),
})
export class AppModule {}
