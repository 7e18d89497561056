import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { LockService } from 'nestjs-redlock';
import { StaleTokenError } from 'nestjs-redlock/fencing';
import { Accounts } from './accounts.js';
import { AppModule } from './app.module.js';

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['warn', 'error'] });
const accounts = app.get(Accounts);

await accounts.open('ada');
await Promise.all(Array.from({ length: 20 }, () => accounts.deposit('ada', 1)));
console.log(`20 deposits of 1 at the same time: the balance is ${await accounts.balance('ada')}`);

// This holder stands for a process that is paused until its lock has ended and a later holder has written.
const late = await app.get(LockService).acquire('account:ada');
await late.release();
await accounts.deposit('ada', 1);
try {
  await accounts.add(late, 'ada', 1);
} catch (error) {
  if (!(error instanceof StaleTokenError)) throw error;
  console.log(`the late write was refused: ${error.code}`);
}
console.log(`the balance is ${await accounts.balance('ada')}`);
await app.close();
