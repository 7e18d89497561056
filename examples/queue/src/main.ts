import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import { InvoiceQueue } from './invoices.js';

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['warn', 'error'] });
// Ctrl-C waits for the jobs that run, and releases their locks.
app.enableShutdownHooks();
const queue = app.get(InvoiceQueue);
for (const number of [1, 2, 3]) {
  await queue.add({ customer: 'Ada', number });
  await queue.add({ customer: 'Ben', number });
}
