import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { AppModule } from './app.module.js';
import { readEnvironment } from './config/environment.js';
import { checkServices } from './config/service-check.js';
import { BODY_LIMIT } from './error.filter.js';

async function start(): Promise<void> {
  const environment = readEnvironment(process.env);
  await checkServices(environment);
  const app = await NestFactory.create<NestExpressApplication>(AppModule.register(environment), {
    logger: ['log', 'warn', 'error'],
    abortOnError: false,
  });
  app.useBodyParser('json', { limit: BODY_LIMIT });
  app.enableShutdownHooks();
  try {
    await app.listen(environment.PORT, environment.HOST);
  } catch (error) {
    // Timers and consumers already run. They would keep an instance alive that no client can reach.
    await app.close();
    throw error;
  }
  console.log(`${environment.INSTANCE} listens on ${await app.getUrl()}`);
}

try {
  await start();
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = 1;
}
