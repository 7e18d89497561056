import type { LockHandle } from '../../../lib/core/lock-handle.js';
import type { AcquireOptions } from '../../../lib/core/lock-options.js';
import type { Call, Holding } from '../judge/judge.js';
import { type Operation, permitsOf } from '../plans/plan.js';
import type { Random } from '../world/random.js';
import type { Application } from '../scene.js';
import { KEYS, reasonOf } from './keys.js';
import { attemptLimit, nodeLimit } from './limits.js';

type Options = Pick<AcquireOptions, 'minHold' | 'maxHold' | 'mode' | 'permits' | 'signal' | 'retry'> & {
  readonly ttl: number;
  readonly renew: boolean | 'thread';
};

/** One caller: it calls the library again and again, each time in another way. */
export class Worker {
  readonly #random: Random;
  readonly #operations: readonly Operation[];

  constructor(
    private readonly app: Application,
    number: number,
  ) {
    const { world, plan } = app.scene;
    this.#random = world.random(`work:${app.name}:${number}`);
    this.#operations = Object.entries(plan.mix).flatMap(([operation, weight]) =>
      Array.from({ length: weight }, () => operation as Operation),
    );
  }

  async work(): Promise<void> {
    const { app } = this;
    const random = this.#random;
    const { pace, leastPace = 1 } = app.scene.plan;
    await app.process.sleep(random.between(1, 1_000));
    while (app.isWorking) {
      try {
        await this.#once(random.pick(this.#operations));
      } catch (error) {
        app.scene.judge.find('unhandled', `${app.name}: ${(error as Error).stack}`);
      }
      await app.process.sleep(random.scaled(leastPace, pace));
    }
  }

  #once(operation: Operation): Promise<void> {
    const random = this.#random;
    const { plan } = this.app.scene;
    const key = random.pick(KEYS.slice(0, plan.keys));
    const timeout = random.pick([300, 1_000, 5_000]);
    const options: Options = {
      ttl: random.pick(plan.ttls),
      renew: !random.chance(plan.lapsing ?? 0.15) && (plan.thread ? 'thread' : true),
      retry: { timeout },
    };
    switch (operation) {
      case 'acquire':
        return this.#acquire(key, options, timeout);
      case 'tryAcquire':
        return this.#tryAcquire(key, options);
      case 'tryPermits':
        return this.#tryAcquire('q', { ...options, permits: random.pick(permitsOf(plan)) });
      case 'severalKeys':
        return this.#acquire(
          random.pick([
            ['a', 'b'],
            ['b', 'c'],
            ['a', 'b', 'c'],
          ]),
          options,
          timeout,
        );
      case 'shared':
        return this.#acquire('s', { ...options, mode: random.chance(0.3) ? 'exclusive' : 'shared' }, timeout);
      case 'permits': {
        const permits = random.pick(permitsOf(plan));
        return this.#acquire('q', { ...options, permits }, timeout + nodeLimit(options.ttl, plan));
      }
      case 'minHold':
        return this.#acquire(key, { ...options, minHold: random.whole(20, 500) }, timeout);
      case 'maxHold':
        return this.#acquire(key, { ...options, maxHold: random.whole(50, 2_000) }, timeout);
      case 'aborted':
        return this.#abort(key, options, timeout);
      case 'attempts': {
        const attempts = random.whole(1, 4);
        // Each attempt has up to four further rounds, and then a pause.
        const limit = attempts * (attemptLimit(options.ttl, plan) + 350);
        return this.#acquire(key, { ...options, retry: { attempts, delay: 50, jitter: 20 } }, limit);
      }
      case 'withLock':
        return this.#withLock(key, options, timeout);
      case 'inspect':
        return this.#inspect(key);
      case 'declared':
        return this.#declared(key, options, timeout);
      case 'list':
        return this.#list();
      case 'forceRelease':
        return this.#forceRelease('c');
    }
  }

  async #acquire(
    key: string | string[],
    options: Options,
    limit: number,
    acquire = () => this.app.locks.acquire(key, options as never),
  ): Promise<void> {
    const { app } = this;
    const { judge } = app.scene;
    const waitsFor = options.retry && 'timeout' in options.retry ? key : undefined;
    const call = judge.called(
      app.process,
      `acquires ${key}${kindOf(options)}`,
      limit,
      waitsFor,
      options.mode,
    );
    let lock: LockHandle;
    try {
      lock = await acquire();
    } catch (error) {
      return judge.settled(call, reasonOf(error));
    }
    return this.#hold(call, lock, options);
  }

  async #tryAcquire(key: string, options: Options): Promise<void> {
    const { app } = this;
    const { judge, plan } = app.scene;
    const { ttl, renew, permits } = options;
    // An attempt that got several slots begins again, at most four times.
    const beginnings = permits === undefined ? 1 : 5;
    const limit = beginnings * attemptLimit(ttl, plan);
    const call = judge.called(app.process, `tries ${key}${kindOf(options)}`, limit);
    judge.tries(app.process, key);
    let lock: LockHandle | null;
    try {
      lock = await app.locks.tryAcquire(key, { ttl, renew, ...(permits !== undefined && { permits }) });
    } catch (error) {
      return judge.settled(call, reasonOf(error));
    }
    if (!lock) return judge.settled(call, 'null');
    return this.#hold(call, lock, options);
  }

  #abort(key: string, options: Options, timeout: number): Promise<void> {
    const controller = new AbortController();
    const after = this.#random.scaled(1, 800);
    this.app.process.later(after, () => controller.abort(new Error('gave up')));
    return this.#acquire(key, { ...options, signal: controller.signal }, Math.min(timeout, after));
  }

  /** Uses an acquired lock, and releases it. */
  async #hold(call: Call, lock: LockHandle, options: Options): Promise<void> {
    const { app } = this;
    const { judge, plan } = app.scene;
    judge.settled(call, saidOf(lock));
    const holding = judge.holds(call, lock, { keepsFor: options.minHold ?? 0 });
    await this.#use(lock, options);
    judge.releases(holding);
    const longest = Math.max(options.ttl, app.scene.longestTtl);
    const release = judge.called(app.process, `releases ${lock.keys}`, nodeLimit(longest, plan));
    await lock.release();
    judge.settled(release, 'released');
  }

  async #use(lock: LockHandle, { ttl, renew }: Options): Promise<void> {
    const { app } = this;
    const { plan, longestTtl } = app.scene;
    const random = this.#random;
    // A lock that is used to its very end shows a validity that is too long.
    if (!renew && random.chance(0.5)) {
      if (plan.lapsing !== undefined && random.chance(0.3)) await this.#extend(lock, ttl);
      return app.untilLost(lock, 3 * longestTtl);
    }
    const hold = random.chance(0.05) ? random.scaled(300, 8_000) : random.scaled(1, plan.holds ?? 200);
    if (!random.chance(0.15)) return app.untilLost(lock, hold);
    await app.process.sleep(hold / 2);
    await this.#extend(lock, random.pick([ttl, Math.min(longestTtl, ttl * 2)]));
    return app.untilLost(lock, hold / 2);
  }

  async #extend(lock: LockHandle, ttl: number): Promise<void> {
    const { app } = this;
    const { judge, plan, longestTtl } = app.scene;
    // A thread that hangs has as long, before its holder extends the lock itself.
    const limit = (plan.thread ? 2 : 1) * (2 * nodeLimit(longestTtl, plan) + 200) - 100;
    const call = judge.called(app.process, `extends ${lock.keys} to ${ttl}`, limit);
    await lock.extend(ttl).then(
      () => judge.settled(call, 'extended'),
      (error: unknown) => judge.settled(call, reasonOf(error)),
    );
  }

  /** Runs a task under a lock, with calls inside it. */
  async #withLock(key: string, options: Options, timeout: number): Promise<void> {
    const { app } = this;
    const { judge } = app.scene;
    const random = this.#random;
    const call = judge.called(app.process, `runs under ${key}`, timeout);
    const [nests, waits, other] = [random.chance(0.5), random.chance(0.2), random.pick(['c', 'd'])];
    let holding: Holding | undefined;
    const task = async (lock: LockHandle): Promise<void> => {
      judge.settled(call, saidOf(lock));
      holding = judge.holds(call, lock);
      if (nests) {
        await app.locks.withLock(key, { ...options, reentrant: true }, (inner) => {
          if (inner.fencingToken !== lock.fencingToken)
            judge.find('nested-token', `${app.name} joined ${key} and got another token`);
          return app.process.sleep(random.scaled(1, 100));
        });
      }
      if (waits) {
        const short = { ttl: options.ttl, retry: { timeout: 300 } };
        await app.locks.withLock(other, short, () => app.process.sleep(5)).catch(() => undefined);
      }
      await this.#use(lock, options);
    };
    try {
      await app.locks.withLock(key, options, async (lock) => {
        try {
          await task(lock);
        } finally {
          if (holding) judge.releases(holding);
        }
      });
    } catch (error) {
      judge.settled(call, reasonOf(error));
    }
  }

  /** Acquires a lock that is declared, as `defineLocks` does it once in an application. */
  #declared(key: string, { ttl, renew, retry }: Options, limit: number): Promise<void> {
    const { library } = this.app.scene;
    const { declared } = library.defineLocks({ declared: { key: (name: string) => name, ttl, renew } });
    const options = { ttl, renew, retry };
    return this.#acquire(key, options, limit, () => this.app.locks.acquire(declared.for(key), { retry }));
  }

  async #list(): Promise<void> {
    const { app } = this;
    const { judge } = app.scene;
    const call = judge.called(app.process, 'lists locks', 20_000);
    let count = 0;
    try {
      for await (const { held } of app.locks.list()) if (held) count++;
      judge.settled(call, String(count));
    } catch (error) {
      judge.settled(call, reasonOf(error));
    }
  }

  async #inspect(key: string): Promise<void> {
    const { app } = this;
    const { judge } = app.scene;
    const call = judge.called(app.process, `inspects ${key}`, 10_000);
    await app.locks.inspect(key).then(
      ({ held }) => judge.settled(call, held ? 'held' : 'free'),
      (error: unknown) => judge.settled(call, reasonOf(error)),
    );
  }

  async #forceRelease(key: string): Promise<void> {
    const { app } = this;
    const { judge } = app.scene;
    const call = judge.called(app.process, `releases ${key} by force`, 10_000);
    await app.locks.forceRelease(key).then(
      (released) => judge.settled(call, String(released)),
      (error: unknown) => judge.settled(call, reasonOf(error)),
    );
  }
}

function kindOf({ mode, permits }: Options): string {
  return permits === undefined ? (mode === 'shared' ? ', shared' : '') : `, ${permits} permits`;
}

function saidOf({ id, fencingToken, slots }: LockHandle): string {
  return `got ${id.slice(0, 6)} with the token ${fencingToken}${slots ? ` in the slot ${slots}` : ''}`;
}
