import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Get, Param, Post } from '@nestjs/common';
import { WithLock } from 'nestjs-redlock';

@Controller('orders')
export class OrdersController {
  /** A second payment of the same order fails immediately: LockExceptionFilter answers 409 with Retry-After. */
  @Post(':id/payment')
  @WithLock((id: string) => `order:${id}`, { retry: false })
  async pay(@Param('id') id: string): Promise<{ readonly paid: string }> {
    await sleep(2_000);
    return { paid: id };
  }

  /** A second caller gets the result of `onBusy` in place of an error. */
  @Get('report')
  @WithLock('report', { retry: false, onBusy: () => ({ status: 'in progress' }) })
  async report(): Promise<{ readonly status: string }> {
    await sleep(2_000);
    return { status: 'done' };
  }
}
