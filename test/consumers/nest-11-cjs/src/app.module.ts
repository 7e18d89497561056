import { Module } from '@nestjs/common';
import { TerminusModule } from '@nestjs/terminus';
import { RedlockModule } from 'nestjs-redlock';
import { RedlockBoardModule } from 'nestjs-redlock/board';
import { RedlockHealthIndicator } from 'nestjs-redlock/health';
import { EventsController } from './events.controller';
import { ReportsController } from './reports.controller';
import { ReportsService } from './reports.service';

@Module({
  imports: [
    TerminusModule,
    RedlockModule.forRootAsync({
      // These tests are not about the time limit of a node, so a busy machine must not reach it.
      useFactory: () => ({
        nodes: [process.env.REDIS_URL ?? 'redis://127.0.0.1:6379'],
        nodeTimeout: 60_000,
      }),
    }),
    RedlockBoardModule.forRoot({ path: '/locks', public: true }),
  ],
  controllers: [EventsController, ReportsController],
  providers: [ReportsService, RedlockHealthIndicator],
})
export class AppModule {}
