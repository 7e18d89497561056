import {
  type BeforeApplicationShutdown,
  type DynamicModule,
  Inject,
  Logger,
  Module,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common';
import { LazyModuleLoader, ModulesContainer } from '@nestjs/core';
import { isObject, sitesOfAll } from '../decorator/lock-sites.js';
import { adopt, interceptorOf, isDecorated } from '../decorator/interceptor-injection.js';
import type { LateParts } from '../decorator/late-parts.js';
import { LockInterceptor } from '../decorator/lock.interceptor.js';
import type { Leaders } from '../service/leader/leaders.js';
import { LeaderCheck } from '../decorator/leader/leader-check.js';
import type { LockRuntime } from '../service/lock-runtime.js';
import {
  type ASYNC_OPTIONS_TYPE,
  checkModuleExtras,
  ConfigurableModuleClass,
  INSTANCE_NAME,
  LEADERS,
  PARTS,
  RUNTIME,
  type OPTIONS_TYPE,
} from './redlock.module-definition.js';
import { OncePerTickCheck } from '../decorator/schedule/once-per-tick.js';
import { Ticks } from '../decorator/schedule/ticks.js';
import { checkModuleOptions } from '../setup/redlock.options.js';
import { hideFields } from '../core/shown-as.js';
import { quoted } from '../core/printable.js';

/**
 * Provides `LockService` to the application, and makes `@WithLock` work.
 *
 * @example
 * ```ts
 * import { Module } from '@nestjs/common';
 * import { RedlockModule } from 'nestjs-redlock';
 *
 * @Module({ imports: [RedlockModule.forRoot({ nodes: 'redis://localhost:6379' })] })
 * class AppModule {}
 * ```
 */
@Module({})
export class RedlockModule
  extends ConfigurableModuleClass
  implements OnModuleInit, OnApplicationBootstrap, BeforeApplicationShutdown, OnApplicationShutdown
{
  /** The objects whose decorators were found. */
  readonly #discovered = new WeakSet<object>();
  readonly #ticks: OncePerTickCheck;
  readonly #leaderCheck: LeaderCheck;
  /** For objects that Nest has but did not create. */
  readonly #interceptor: LockInterceptor;
  #hasStarted = false;
  /** The number of calls of `LazyModuleLoader` whose objects are not discovered yet. */
  #loading = 0;

  /** @internal Nest creates the object. */
  constructor(
    @Inject(RUNTIME) private readonly runtime: LockRuntime,
    @Inject(LEADERS) private readonly leaders: Leaders,
    @Inject(INSTANCE_NAME) private readonly instance: { readonly name: string | undefined },
    @Inject(ModulesContainer) private readonly modules: ModulesContainer,
    @Inject(LazyModuleLoader) private readonly lazyModules: LazyModuleLoader,
    @Inject(PARTS) parts: LateParts,
  ) {
    super();
    hideFields(this, 'runtime', 'leaders', 'modules', 'lazyModules');
    this.#ticks = new OncePerTickCheck(instance.name);
    this.#leaderCheck = new LeaderCheck(instance.name, leaders);
    this.#interceptor = new LockInterceptor(parts, new Ticks(modules));
    parts.onInjected((object) => {
      this.#leaderCheck.made(object);
      this.#tellUnmanagedLeaders();
    });
    parts.arrive({ runtime, leaders });
  }

  /** @throws TypeError or RangeError naming the wrong option */
  static override forRoot(options: typeof OPTIONS_TYPE): DynamicModule {
    const { name, isGlobal, ...own } = options ?? {};
    checkModuleExtras({ name, isGlobal });
    checkModuleOptions(own);
    return super.forRoot(options);
  }

  /**
   * Configures the module with options from a factory. Give `name` and `isGlobal` beside the factory.
   *
   * @throws TypeError naming the wrong option; an option from the factory is checked when the application starts
   */
  static override forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule {
    const { useFactory, useClass, useExisting } = options ?? {};
    if (!(useFactory ?? useClass ?? useExisting)) {
      throw new TypeError(
        '`RedlockModule.forRootAsync` needs one of `useFactory`, `useClass` and `useExisting`, such as ' +
          '`{ useFactory: () => ({ nodes }) }`; if the options are already known, use `forRoot`',
      );
    }
    checkModuleExtras(options);
    return super.forRootAsync(options);
  }

  /**
   * @throws Error when another module has the same name, because the locks of the two might not exclude each other
   * @throws Error when the ticks of two classes with `oncePerTick` cannot be told apart, or when two methods have
   * `@Leader` with the same name
   * @throws RedlockError when no `@Leader` has the name of an `@OnlyLeader`
   * @throws TypeError when a method with `oncePerTick` has no schedule, or a method with `release: 'afterCommit'` has
   * no `afterTransaction`
   * @throws RangeError when the ttl of a method is longer than `restartGuard`
   */
  onModuleInit(): void {
    this.#discover();
    this.#listenFirst();
    this.#discoverWhatLoadsLater();
  }

  /**
   * Finds the decorators of all objects that were made since the last call, also of those that factories have returned.
   * Checks the decorators, and gives the objects what their methods need.
   */
  #discover(): void {
    const { name } = this.instance;
    const found: { readonly object: object; readonly isStatic: boolean; readonly mayLead: boolean }[] = [];
    for (const module of this.modules.values()) {
      this.#refuseTwin(module.instance);
      const { providers, controllers, injectables } = module;
      for (const wrapper of [...providers.values(), ...controllers.values(), ...injectables.values()]) {
        // For a transient or request-scoped provider, this object has only the methods of the class.
        const object: unknown = wrapper.instance;
        if (!isObject(object) || this.#discovered.has(object)) continue;
        const isStatic = wrapper.isDependencyTreeStatic() && !wrapper.isTransient;
        // Another call of `LazyModuleLoader` may still be making the object of a class.
        const isMade = !isStatic || wrapper.isNotMetatype || interceptorOf(object, name) !== undefined;
        if (isDecorated(object, name) && !isMade) continue;
        // Add the object before the checks: a mistake must not make the loads of other modules fail, too.
        this.#discovered.add(object);
        found.push({ object, isStatic, mayLead: !injectables.has(wrapper.token) });
        if (wrapper.isDependencyTreeStatic()) adopt(object, name, this.#interceptor);
      }
    }
    const sites = sitesOfAll(
      found.map(({ object }) => object),
      name,
    );
    this.runtime.declarations.check(sites);
    this.runtime.foresee(sites);
    for (const { object, isStatic, mayLead } of found) {
      if (!mayLead) continue;
      this.#ticks.check(object);
      this.#leaderCheck.add(object, isStatic);
    }
    this.#leaderCheck.finish();
  }

  /**
   * Nest calls no hooks for modules of `LazyModuleLoader`. So their decorators are found when the loader has loaded a
   * module: a `@Leader` must campaign, and a mistake must make the call of `load` fail.
   */
  #discoverWhatLoadsLater(): void {
    const { lazyModules } = this;
    const load = lazyModules.load.bind(lazyModules);
    lazyModules.load = async (...args) => {
      this.#loading++;
      try {
        const loaded = await load(...args);
        this.#discover();
        if (this.#hasStarted) this.leaders.start();
        return loaded;
      } finally {
        this.#loading--;
        this.#tellUnmanagedLeaders();
      }
    };
  }

  /** Warns when all objects that Nest lists are discovered. */
  #tellUnmanagedLeaders(): void {
    if (this.#hasStarted && this.#loading === 0) this.#leaderCheck.tellUnmanaged();
  }

  #refuseTwin(other: unknown): void {
    if (!(other instanceof RedlockModule) || other.instance.name !== this.instance.name) return;
    // `other` may be this object inside a Proxy, as monitoring makes it.
    if (other.runtime === this.runtime) return;
    const named =
      this.instance.name === undefined ? 'without a name' : `with the name '${this.instance.name}'`;
    throw new Error(
      `RedlockModule is configured twice ${named}, and the locks of one configuration might not exclude the locks of the ` +
        'other. Call forRoot once, in the root module: RedlockModule is global. Or give one of the two another `name`.',
    );
  }

  /**
   * Connects the nodes after all other steps that can make start-up fail. After a failure Nest calls no hook that could
   * close the connections, so connections opened before the failed step would stay open.
   *
   * @throws Error when a server is not fit for locks, such as a replica
   */
  async onApplicationBootstrap(): Promise<void> {
    try {
      await this.runtime.open();
    } catch (error) {
      for (const { leaders, runtime } of this.#instances()) {
        leaders.stop();
        await runtime.close();
      }
      throw error;
    }
    this.#hasStarted = true;
    this.leaders.start();
    this.#tellUnmanagedLeaders();
  }

  /** All instances in the application. */
  #instances(): RedlockModule[] {
    return [...this.modules.values()]
      .map(({ instance }) => instance)
      .filter((instance) => instance instanceof RedlockModule);
  }

  /**
   * Makes Nest tell the beginning of the shutdown to the first of all modules. Nest calls `onModuleDestroy` of one module
   * after the other, this module late, and a hook of another module may wait for locked methods.
   */
  #listenFirst(): void {
    const [first] = [...this.modules.values()].sort((one, other) => other.distance - one.distance).slice(-1);
    const listener: OnModuleDestroy = { onModuleDestroy: () => this.#beginClosing() };
    first?.addProvider({ provide: Symbol('REDLOCK_SHUTDOWN'), useValue: listener });
  }

  /** Tells running methods and leaders that the shutdown begins. */
  #beginClosing(): void {
    this.runtime.beginClosing();
    this.leaders.stop();
  }

  /**
   * Waits for running methods. Most modules close their databases and queues in a later hook, so the running methods
   * can still use them.
   */
  async beforeApplicationShutdown(): Promise<void> {
    // Nest calls the hooks of one module after the other. All instances wait at the same time, so that several
    // instances take no longer than one.
    await Promise.all(this.#instances().map(({ runtime }) => runtime.drain()));
  }

  async onApplicationShutdown(): Promise<void> {
    const late = await this.runtime.close();
    if (late.length > 0) {
      new Logger(RedlockModule.name).warn(
        `Shut down while methods were running under locks on ${quoted(late)}. These locks expire with their ttl.`,
      );
    }
  }
}
