import { ConfigurableModuleBuilder, type FactoryProvider, Logger, type Provider } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { lockSites } from '../decorator/lock-sites.js';
import { interceptorToken } from '../decorator/interceptor-injection.js';
import { LockInterceptor } from '../decorator/lock.interceptor.js';
import { Leaders } from '../service/leader/leaders.js';
import { LockService } from '../service/lock.service.js';
import { lockServiceToken } from '../service/lock-service-token.js';
import { LateParts } from '../decorator/late-parts.js';
import type { LockRuntime } from '../service/lock-runtime.js';
import { makeRuntime } from '../setup/open-runtime.js';
import { Ticks } from '../decorator/schedule/ticks.js';
import type { RedlockModuleOptions } from '../setup/redlock.options.js';
import { badOption, checkBoolean } from '../core/checks.js';
import { quiet } from '../core/log.js';

/** Options of `forRoot` and `forRootAsync` that concern the module and not its locks. */
export interface RedlockModuleExtras {
  /**
   * Lets other modules use the locks without importing this module.
   * @defaultValue true
   */
  isGlobal?: boolean | undefined;

  /**
   * The name of an additional instance with its own configuration. Inject its service with `@InjectLockService(name)`,
   * and decorate methods with `{ instance: name }`.
   */
  name?: string | undefined;
}

/** @throws TypeError naming the wrong option */
export function checkModuleExtras({ name, isGlobal }: RedlockModuleExtras): void {
  if (name !== undefined && (typeof name !== 'string' || name === '')) {
    throw badOption('name', 'a string that is not empty', name);
  }
  if (isGlobal !== undefined) checkBoolean('isGlobal', isGlobal);
}

/**
 * Token of the runtime. Nest shows the description in its error when `forRoot` was forgotten, so the description
 * contains the remedy.
 */
export const RUNTIME = Symbol('RedlockModule needs .forRoot({ nodes }) or .forRootAsync({ ... })');

/** Leaders of this application. */
export const LEADERS = Symbol('REDLOCK_LEADERS');

/** The runtime and the leaders, for providers that do not depend on the options of the module. */
export const PARTS = Symbol('REDLOCK_PARTS');

/** The name of the instance that a module class serves. */
export const INSTANCE_NAME = Symbol('REDLOCK_INSTANCE_NAME');

export const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN, OPTIONS_TYPE, ASYNC_OPTIONS_TYPE } =
  new ConfigurableModuleBuilder<RedlockModuleOptions>({ moduleName: 'Redlock' })
    .setClassMethodName('forRoot')
    .setFactoryMethodName('createRedlockOptions')
    .setExtras<RedlockModuleExtras>({ isGlobal: true, name: undefined }, (definition, { isGlobal, name }) => {
      const runtime: FactoryProvider = {
        provide: RUNTIME,
        useFactory: (
          options: RedlockModuleOptions,
          instance: { name: string | undefined },
          modules: ModulesContainer,
          parts: LateParts,
        ) =>
          orFail(parts, () =>
            makeRuntime(options, {
              ...instance,
              sites: lockSites(modules, instance.name),
              log: new Logger('RedlockModule'),
            }),
          ),
        inject: [MODULE_OPTIONS_TOKEN, INSTANCE_NAME, ModulesContainer, PARTS],
      };
      const service: FactoryProvider = {
        provide: lockServiceToken(name),
        // `LockService` depends on the options, but not for Nest: on a circle Nest 11 ends the process in silence.
        useFactory: async (parts: LateParts) => {
          const present = parts.present ?? (await parts.wait());
          return new LockService(present.runtime, present.leaders);
        },
        inject: [PARTS],
      };
      const leaders: FactoryProvider = {
        provide: LEADERS,
        useFactory: (made: LockRuntime) => new Leaders(made, name, quiet(new Logger('Leader'))),
        inject: [RUNTIME],
      };
      const interceptor: FactoryProvider = {
        provide: interceptorToken(name),
        useFactory: (parts: LateParts, modules: ModulesContainer) =>
          new LockInterceptor(parts, new Ticks(modules)),
        inject: [PARTS, ModulesContainer],
      };
      return {
        ...definition,
        global: isGlobal ?? true,
        providers: [
          ...(definition.providers ?? []).map(reportingFailure),
          { provide: INSTANCE_NAME, useValue: { name } },
          { provide: PARTS, useFactory: () => new LateParts() },
          runtime,
          leaders,
          service,
          interceptor,
        ],
        exports: [...(definition.exports ?? []), service.provide, interceptor.provide],
      };
    })
    .build();

/** Makes the provider of the options tell {@link LateParts} that its factory has failed. */
function reportingFailure(provider: Provider): Provider {
  const isOptions =
    typeof provider === 'object' && provider.provide === MODULE_OPTIONS_TOKEN && 'useFactory' in provider;
  if (!isOptions) return provider;
  const { useFactory, inject = [] } = provider;
  return {
    ...provider,
    useFactory: async (parts: LateParts, ...needed: unknown[]): Promise<unknown> => {
      try {
        return await (useFactory(...needed) as unknown);
      } catch (error) {
        parts.fail();
        throw error;
      }
    },
    inject: [PARTS, ...inject],
  };
}

/** Calls `make`, and tells {@link LateParts} of its failure. */
function orFail<T>(parts: LateParts, make: () => T): T {
  try {
    return make();
  } catch (error) {
    parts.fail();
    throw error;
  }
}
