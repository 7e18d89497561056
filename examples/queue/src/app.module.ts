import { BullModule } from '@nestjs/bullmq';
import { Module } from '@nestjs/common';
import { RedlockModule } from 'nestjs-redlock';
import { InvoiceQueue, InvoiceWorker } from './invoices.js';

const url = process.env['REDIS_URL'] ?? 'redis://localhost:6379';

@Module({
  imports: [
    RedlockModule.forRoot({ nodes: url }),
    BullModule.forRoot({ connection: { url } }),
    BullModule.registerQueue({ name: 'invoices' }),
  ],
  providers: [InvoiceWorker, InvoiceQueue],
})
export class AppModule {}
