import { NestFactory } from '@nestjs/core';
import { RedlockError } from 'nestjs-redlock';
import { fencedWrite, StaleTokenError } from 'nestjs-redlock/fencing';
import { AppModule } from './app.module.js';
import { ReportsService } from './reports.service.js';

/** Uses the locks once, and prints the outcome as one line of JSON. Afterwards the process must end by itself. */
async function bootstrap() {
  const app = await NestFactory.create(AppModule, { logger: ['error', 'warn'] });
  await app.listen(0, '127.0.0.1');
  const url = await app.getUrl();
  const reports = app.get(ReportsService);
  const [first, second] = await Promise.all([reports.build('daily'), reports.build('daily')]);
  const open = await fetch(`${url}/reports/open/daily`);
  const secret = await fetch(`${url}/reports/secret`);
  const page = await fetch(`${url}/locks`);
  const script = await fetch(`${url}/locks/board.js`);
  const refused: unknown = await fencedWrite({ keys: ['a'], fencingToken: 1 }, async () => ({
    accepted: false,
  })).catch((error: unknown) => error);
  const outcome = {
    package: import.meta.resolve('nestjs-redlock'),
    built: [first ?? null, second ?? null],
    service: await reports.takeTwice('invoice:7'),
    keptByThread: await reports.block(),
    open: await open.json(),
    secret: secret.status,
    board: [page.status, script.headers.get('content-type'), (await script.text()).length > 1_000],
    fencing: refused instanceof StaleTokenError && refused instanceof RedlockError,
  };
  await app.close();
  console.log(JSON.stringify(outcome));
}

await bootstrap();
