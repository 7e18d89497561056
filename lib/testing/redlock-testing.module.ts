import { type DynamicModule, Module, type Provider } from '@nestjs/common';
import { RedlockModule } from '../module/redlock.module.js';
import { RUNTIME, type RedlockModuleExtras } from '../module/redlock.module-definition.js';
import type { DeclaredLocks } from '../core/declared-lock.js';
import type { RedlockModuleOptions } from '../setup/redlock.options.js';
import { badOption } from '../core/checks.js';
import { TestLocks } from './test-locks.js';

/**
 * Options of {@link RedlockTestingModule.forRoot}: the options of `RedlockModule.forRoot` without `nodes`, and with
 * another meaning of `locks`. If neither `inTransaction` nor `afterTransaction` is given, no call is in a transaction.
 */
export interface RedlockTestingOptions
  extends Omit<RedlockModuleOptions, 'nodes' | 'locks'>, RedlockModuleExtras {
  /** The declared locks: the option `locks` of `RedlockModule`. */
  readonly declared?: DeclaredLocks;

  /**
   * The locks of the application. Applications with the same object exclude each other, like instances of one service.
   * @defaultValue a new object, which you get with `moduleRef.get(TestLocks)`
   */
  readonly locks?: TestLocks;
}

/**
 * Hooks of an application without transactions: without hooks the module would refuse methods with `release:
 * 'afterCommit'`.
 */
const NO_TRANSACTIONS = { inTransaction: () => false, afterTransaction: () => undefined };

function tellsOfTransactions({ inTransaction, afterTransaction }: RedlockTestingOptions): boolean {
  return inTransaction !== undefined || afterTransaction !== undefined;
}

/**
 * Replaces `RedlockModule` in tests. `LockService` and `@WithLock` work as usual, but with locks in memory that the
 * test controls.
 */
@Module({})
export class RedlockTestingModule {
  /**
   * @throws TypeError or RangeError naming the wrong option
   * @example
   * ```ts
   * import { Test } from '@nestjs/testing';
   * import { RedlockTestingModule, TestLocks } from 'nestjs-redlock/testing';
   *
   * const moduleRef = await Test.createTestingModule({ imports: [RedlockTestingModule.forRoot()] }).compile();
   * const locks = moduleRef.get(TestLocks);
   * ```
   */
  static forRoot({
    locks = new TestLocks(),
    declared,
    ...options
  }: RedlockTestingOptions = {}): DynamicModule {
    if (!(locks instanceof TestLocks)) throw badOption('locks', 'a `TestLocks`', locks);
    const { factory, inject } = locks.runtimeFactory();
    const redlock = RedlockModule.forRoot({
      ...(tellsOfTransactions(options) ? options : { ...options, ...NO_TRANSACTIONS }),
      ...(declared && { locks: declared }),
      nodes: 'memory',
    });
    const controlled = (redlock.providers ?? []).map((provider): Provider =>
      typeof provider === 'object' && provider.provide === RUNTIME
        ? { provide: RUNTIME, useFactory: factory, inject }
        : provider,
    );
    return {
      module: RedlockTestingModule,
      global: redlock.global ?? true,
      imports: [{ ...redlock, providers: controlled }],
      providers: [{ provide: TestLocks, useValue: locks }],
      exports: [RedlockModule, TestLocks],
    };
  }
}
