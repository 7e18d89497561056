import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import 'reflect-metadata';
import {
  type AcquireOptions,
  LockService,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../../lib/index.js';
import { holdInside, type Release, type Session } from './contender.js';

// These functions are not in `ours.ts`, so that processes that measure other libraries need not load Nest.

const PATIENCE = { timeout: 120_000 };

/**
 * Milliseconds that a node may take to answer. Only the tests of the benchmark set a value, so that their single
 * attempts do not fail on a busy machine. Measurements use the default of the module.
 */
const NODE_TIMEOUT = Number(process.env['BENCH_NODE_TIMEOUT']) || undefined;

/**
 * Opens this package as its README says, through the container of Nest. Fencing tokens, restart guard and node checks
 * are on.
 */
export async function openService(
  nodes: RedlockModuleOptions['nodes'],
  nodeTimeout = NODE_TIMEOUT,
): Promise<{ locks: LockService; close: () => Promise<void> }> {
  @Module({ imports: [RedlockModule.forRoot({ nodes, nodeTimeout })] })
  class BenchModule {}

  const app = await NestFactory.createApplicationContext(BenchModule, { logger: false });
  return { locks: app.get(LockService), close: () => app.close() };
}

/** Kind of the locks; exclusive by default. */
export type Kind = Pick<AcquireOptions, 'mode' | 'permits'>;

/**
 * Opens this package as one of the compared libraries.
 *
 * @param oneKey - true to lock one key, whatever keys the session is called with
 * @param nodeTimeout - milliseconds; by default the time limit of the module
 */
export async function openOurs(
  nodes: RedlockModuleOptions['nodes'],
  kind: Kind = {},
  oneKey = false,
  nodeTimeout?: number,
): Promise<Session> {
  const { locks, close } = await openService(nodes, nodeTimeout);
  const keyOf = (key: string): string => (oneKey ? 'one' : key);
  return {
    async acquire(key, ttl): Promise<Release> {
      const lock = await locks.acquire(keyOf(key), { ttl, renew: false, retry: false, ...kind });
      return () => lock.release();
    },
    withLock: (key, ttl, task) => locks.withLock(keyOf(key), { ttl, retry: false, ...kind }, task),
    async wait(key, ttl): Promise<Release> {
      const lock = await locks.acquire(keyOf(key), { ttl, retry: PATIENCE, ...kind });
      return () => lock.release();
    },
    async tryFor(key, ttl, budget): Promise<Release> {
      const lock = await locks.acquire(keyOf(key), { ttl, retry: { timeout: budget }, ...kind });
      return () => lock.release();
    },
    async hold(key, ttl, lost): Promise<Release> {
      const lock = await locks.acquire(keyOf(key), { ttl, retry: false, ...kind });
      if (lost) lock.signal.addEventListener('abort', lost);
      return () => lock.release();
    },
    close,
  };
}

/** Opens this package as a compared library that locks through the decorator. */
export async function openDecorated(urls: readonly string[]): Promise<Session> {
  @Injectable()
  class Tasks {
    @WithLock((key: string) => key, { ttl: 10_000, retry: false })
    async run(_key: string, task: () => Promise<void>): Promise<void> {
      await task();
    }
  }

  @Module({
    imports: [RedlockModule.forRoot({ nodes: urls, nodeTimeout: NODE_TIMEOUT })],
    providers: [Tasks],
  })
  class BenchModule {}

  const app = await NestFactory.createApplicationContext(BenchModule, { logger: false });
  const tasks = app.get(Tasks);
  const acquire = (key: string): Promise<Release> =>
    holdInside((task) => tasks.run(key, () => task(undefined)));
  return {
    acquire,
    withLock: (key, _ttl, task) => tasks.run(key, task),
    wait: acquire,
    close: () => app.close(),
  };
}
