import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';

const app = await NestFactory.createApplicationContext(AppModule, { logger: ['warn', 'error'] });
// Ctrl-C waits for the job that runs, and releases its lock.
app.enableShutdownHooks();
console.log('started');
