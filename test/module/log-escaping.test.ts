import { expect, test } from '@jest/globals';
import { Injectable, type LoggerService } from '@nestjs/common';
import { LockLostError, LockService, WithLock } from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';

const KEY = 'a\n[Nest] ERROR all is lost \u001B[31m';
const SHOWN = String.raw`a\u000a[Nest] ERROR all is lost \u001b[31m`;

const OPTIONS = { nodes: 'memory', owner: KEY, shutdownTimeout: 1 } as const;

/** Keeps the log lines about locks. */
class Log implements LoggerService {
  readonly lines: string[] = [];
  readonly #keep = (...[text, context]: unknown[]): void => {
    if (context === 'RedlockModule' || context === 'WithLock') this.lines.push(String(text));
  };
  readonly log = this.#keep;
  readonly warn = this.#keep;
  readonly error = this.#keep;
  readonly debug = this.#keep;
}

test('every log line escapes keys and owners', async () => {
  let running = (): void => undefined;
  let finish = (): void => undefined;
  const isRunning = new Promise<void>((resolve) => (running = resolve));
  const mayFinish = new Promise<void>((resolve) => (finish = resolve));

  @Injectable()
  class Service {
    @WithLock(() => KEY, { onBusy: 'skip', onLost: 'ignore' })
    async run(): Promise<void> {
      running();
      await mayFinish;
    }
  }
  const log = new Log();
  const app = await startApp({ providers: [Service] }, OPTIONS, { logger: log });
  const locks = app.get(LockService);
  const lock = await locks.acquire(KEY);
  await app.get(Service).run();
  await locks.forceRelease(KEY);
  expect(lock.isHeld()).toBe(false);
  const run = app.get(Service).run();
  await isRunning;
  await app.close();
  finish();
  await run;

  expect(log.lines).toEqual([
    expect.stringMatching(/^nodes: 'memory'/),
    expect.stringContaining(`skipped: "${SHOWN}" is held by ${SHOWN} for`),
    expect.stringContaining(`The lock on "${SHOWN}" is lost`),
    expect.stringContaining(`were running under locks on "${SHOWN}". `),
  ]);
});

test('the line about methods that still run at the end of a shutdown shortens the keys', async () => {
  let running = (): void => undefined;
  const isRunning = new Promise<void>((resolve) => (running = resolve));
  const log = new Log();
  const app = await startApp({}, OPTIONS, { logger: log });
  const keys = Array.from({ length: 50 }, (_, number) => `${number}${'k'.repeat(1_900)}`);
  const task = app.get(LockService).withLock(keys, ({ signal }) => {
    running();
    return new Promise((resolve) => signal.addEventListener('abort', resolve));
  });
  task.catch(() => undefined);
  await isRunning;
  await app.close();

  const line = log.lines.at(-1);
  expect(line).toMatch(
    /^Shut down while methods were running under locks on "0k+…k+", .* and 42 more\. These locks/,
  );
  expect(line?.length).toBeLessThan(1_500);
  await expect(task).rejects.toBeInstanceOf(LockLostError);
});
