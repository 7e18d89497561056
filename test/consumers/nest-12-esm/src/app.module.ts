import { Module } from '@nestjs/common';
import { RedlockModule } from 'nestjs-redlock';
import { RedlockBoardModule } from 'nestjs-redlock/board';
import { ReportsController } from './reports.controller.js';
import { ReportsService } from './reports.service.js';

@Module({
  imports: [
    RedlockModule.forRootAsync({
      // These tests are not about the time limit of a node, so a busy machine must not reach it.
      useFactory: () => ({
        nodes: [process.env.REDIS_URL ?? 'redis://127.0.0.1:6379'],
        nodeTimeout: 60_000,
      }),
    }),
    RedlockBoardModule.forRoot({ path: '/locks', public: true }),
  ],
  controllers: [ReportsController],
  providers: [ReportsService],
})
export class AppModule {}
