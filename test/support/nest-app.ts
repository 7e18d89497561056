import type { INestApplication, LoggerService, ModuleMetadata } from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { Test } from '@nestjs/testing';
import { RedlockModule, type RedlockModuleOptions } from '../../lib/index.js';
import { cleanUpAfterTests } from './leftovers.js';
import { PATIENT } from './patience.js';

export interface StartOptions {
  /** Receives the application before it starts. */
  readonly prepare?: (app: INestApplication) => unknown;
  /** HTTP adapter; by default that of Express. */
  readonly adapter?: AbstractHttpAdapter;
  /** Receives all log lines. Without a logger, Nest prints errors. */
  readonly logger?: LoggerService;
}

/** Starts an application with locks and a long time limit for nodes. It is closed after the test file at the latest. */
export async function startApp(
  metadata: ModuleMetadata,
  options: RedlockModuleOptions = { nodes: 'memory' },
  start: StartOptions = {},
): Promise<INestApplication> {
  const imports = [RedlockModule.forRoot({ ...PATIENT, ...options }), ...(metadata.imports ?? [])];
  return startPlainApp({ ...metadata, imports }, start);
}

/** Starts an application without adding a RedlockModule. */
export async function startPlainApp(
  metadata: ModuleMetadata,
  { prepare, adapter = new ExpressAdapter(), logger }: StartOptions = {},
): Promise<INestApplication> {
  const builder = Test.createTestingModule(metadata);
  if (logger) builder.setLogger(logger);
  const module = await builder.compile();
  const app = module.createNestApplication(adapter, { forceCloseConnections: true });
  const closed = cleanUpAfterTests(() => app.close());
  const close = app.close.bind(app);
  app.close = () => {
    closed();
    return close();
  };
  prepare?.(app);
  await app.init();
  return app;
}
