import { Module } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { LockExceptionFilter, RedlockModule } from 'nestjs-redlock';
import { OrdersController } from './orders.controller.js';

@Module({
  // With 'memory', locks exclude other calls in this process only. With REDIS_URL, they exclude calls in all processes
  // that use that Redis.
  imports: [RedlockModule.forRoot({ nodes: process.env['REDIS_URL'] ?? 'memory' })],
  controllers: [OrdersController],
  providers: [{ provide: APP_FILTER, useClass: LockExceptionFilter }],
})
export class AppModule {}
