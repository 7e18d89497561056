// `npm run typecheck` compiles this file, and nothing runs it. `@ts-expect-error` marks the lines that must not compile. A
// mark on a line that compiles is an error.
import { expectTypeOf } from 'expect-type';
import { Cluster, Redis } from 'ioredis';
import { Cluster as Cluster6, Redis as Redis6 } from 'ioredis-6';
import { Cluster as ValkeyCluster, Redis as Valkey } from 'iovalkey';
import { createClient, createClientPool, createCluster, createSentinel } from 'redis';
import { createClient as createClient5 } from 'redis-5';
import type { Observable } from 'rxjs';
import type { Readable } from 'node:stream';
import {
  currentLock,
  defineLocks,
  type LockHandle,
  type LockHeldError,
  type LockHolder,
  type LockKey,
  type LockMode,
  type LockService,
  OnlyLeader,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
  type WithLockOptions,
} from '../../lib/index.js';

interface Order {
  readonly id: string;
}

const DECLARED = defineLocks({ fixed: { key: 'key' } });
const SEVERAL: readonly string[] = ['a', 'b'];

export class Keys {
  @WithLock('key')
  async fixed(_order: Order): Promise<void> {}

  @WithLock((order: Order) => `order:${order.id}`)
  async ofArguments(_order: Order): Promise<void> {}

  @WithLock((order: Order) => `order:${order.id}`)
  async ofFewerArguments(_order: Order, _times: number): Promise<void> {}

  @WithLock(() => 'key')
  async ofNoArguments(_order: Order): Promise<void> {}

  @WithLock((_first: unknown, second: number) => `key:${second}`)
  async ofWiderArguments(_order: Order, _times: number): Promise<void> {}

  @WithLock((order: { id: string }) => order.id)
  async ofPartOfArguments(_order: Order & { extra: number }): Promise<void> {}

  @WithLock((ids: readonly string[]): readonly string[] => ids)
  async severalReadonly(_ids: readonly string[]): Promise<void> {}

  @WithLock((ids: readonly string[]) => ids.map((id) => `id:${id}`))
  async several(_ids: string[]): Promise<void> {}

  @WithLock((a: string, b: string) => [a, b] as const)
  async tuple(_a: string, _b: string): Promise<void> {}

  @WithLock((id?: string) => id ?? 'none')
  async optional(_id?: string): Promise<void> {}

  @WithLock((...ids: string[]) => ids)
  async rest(..._ids: string[]): Promise<void> {}

  @WithLock((first: string | undefined) => first ?? 'none')
  async firstOfRest(..._ids: string[]): Promise<void> {}

  @WithLock((item: { id: string }) => item.id)
  async generic<T extends { id: string }>(item: T): Promise<T> {
    return item;
  }

  overloaded(id: string): Promise<string>;
  overloaded(id: number): Promise<number>;
  // The compiler checks the parameters of the implementation.
  @WithLock((id: string | number) => `id:${id}`)
  async overloaded(id: string | number): Promise<string | number> {
    return id;
  }

  // @ts-expect-error - the key function takes another type than the method
  @WithLock((id: number) => `id:${id}`)
  async otherType(_id: string): Promise<void> {}

  // @ts-expect-error - a parameter without a type, which the compiler cannot infer
  @WithLock((id) => `id:${id}`)
  async withoutType(_id: string): Promise<void> {}

  // @ts-expect-error - the key function has more parameters than the method
  @WithLock((id: string, times: number) => `${id}:${times}`)
  async moreParameters(_id: string): Promise<void> {}

  // @ts-expect-error - the argument of the method is optional
  @WithLock((id: string) => id)
  async missing(_id?: string): Promise<void> {}

  // @ts-expect-error - a property that the argument does not have
  @WithLock((order: Order & { total: number }) => `${order.total}`)
  async narrower(_order: Order): Promise<void> {}

  // @ts-expect-error - the key is a number
  @WithLock((order: { count: number }) => order.count)
  async numberKey(_order: { count: number }): Promise<void> {}

  // @ts-expect-error - the key function returns a Promise
  @WithLock(async (id: string) => id)
  async laterKey(_id: string): Promise<void> {}

  // @ts-expect-error - the key may be undefined
  @WithLock((order: { id?: string }) => order.id)
  async missingKey(_order: { id?: string }): Promise<void> {}

  @WithLock((tenant: string) => `report:${tenant}`, { permits: 5 })
  async withPermits(_tenant: string): Promise<void> {}

  @WithLock((id: number) => `catalog:${id}`, { mode: 'shared' })
  async shared(_id: number): Promise<void> {}

  // @ts-expect-error - the key function takes another type than the method, also with permits
  @WithLock((id: number) => `id:${id}`, { permits: 5 })
  async otherTypeWithPermits(_id: string): Promise<void> {}

  // @ts-expect-error - a parameter without a type, also for a shared lock
  @WithLock((id) => `id:${id}`, { mode: 'shared' })
  async withoutTypeShared(_id: string): Promise<void> {}

  @WithLock(['a', 'b'])
  async fixedList(): Promise<void> {}

  @WithLock(SEVERAL)
  async readonlyList(_order: Order): Promise<void> {}

  // @ts-expect-error - a list of numbers
  @WithLock([1, 2])
  async numberList(): Promise<void> {}

  // @ts-expect-error - a list of key functions
  @WithLock([(order: Order) => order.id])
  async functionList(_order: Order): Promise<void> {}
}

export abstract class Results {
  @WithLock('key')
  async promise(): Promise<number> {
    return 1;
  }

  @WithLock('key')
  notAsync(): Promise<number> {
    return this.promise();
  }

  @WithLock('key')
  observable(): Observable<number> {
    throw new Error();
  }

  @WithLock('key')
  async *generator(): AsyncGenerator<number, string, boolean> {
    yield 1;
    return 'end';
  }

  @WithLock('key')
  async *iterable(): AsyncIterable<number> {
    yield 1;
  }

  @WithLock((id: string) => id)
  async stream(_id: string): Promise<Readable> {
    throw new Error();
  }

  // @ts-expect-error - the method returns a plain value, not a Promise
  @WithLock('key')
  plain(): number {
    return 1;
  }

  // @ts-expect-error - the method returns nothing, not a Promise
  @WithLock('key')
  nothing(): void {}

  // @ts-expect-error - the method is a synchronous generator
  @WithLock('key')
  *generatorNow(): Generator<number> {
    yield 1;
  }

  // @ts-expect-error - the method returns a value or a Promise
  @WithLock('key')
  sometimes(): number | Promise<number> {
    return 1;
  }

  // @ts-expect-error - a getter
  @WithLock('key')
  get value(): number {
    return 1;
  }

  // @ts-expect-error - a property
  @WithLock('key')
  readonly property = async (): Promise<void> => {};
}

/** Options whose reaction the compiler does not know. */
const ANY_REACTION: WithLockOptions = { onBusy: 'skip' };

export class Refused {
  @WithLock('key', { onBusy: 'skip' })
  async skipped(): Promise<void> {}

  @WithLock('key', { onBusy: 'skip' })
  async skippedOrNumber(): Promise<number | undefined> {
    return 1;
  }

  @WithLock('key', { onBusy: 'skip' })
  observable(): Observable<number> {
    throw new Error();
  }

  @WithLock('key', { onBusy: 'skip' })
  async *generator(): AsyncGenerator<number> {
    yield 1;
  }

  @WithLock('key', { onBusy: 'throw' })
  async refused(): Promise<number> {
    return 1;
  }

  @WithLock('key', { oncePerTick: true })
  async tick(): Promise<void> {}

  @WithLock('key', { oncePerTick: true, onBusy: 'throw' })
  async refusedTick(): Promise<number> {
    return 1;
  }

  @WithLock('key', { onBusy: (error) => error.retryAfter })
  async instead(): Promise<number> {
    return 1;
  }

  @WithLock('key', { onBusy: async (error) => error.retryAfter })
  async insteadLater(): Promise<number | string> {
    return 1;
  }

  @WithLock('key', {
    onBusy: (error) => {
      throw error;
    },
  })
  async thrown(): Promise<number> {
    return 1;
  }

  @WithLock('key', ANY_REACTION)
  async anyReaction(): Promise<number> {
    return 1;
  }

  // @ts-expect-error - a skipped call resolves to undefined
  @WithLock('key', { onBusy: 'skip' })
  async skippedNumber(): Promise<number> {
    return 1;
  }

  // @ts-expect-error - a skipped call resolves to undefined, with a key function, too
  @WithLock((id: number) => `key:${id}`, { onBusy: 'skip', ttl: 5_000 })
  async skippedWithKey(_id: number): Promise<string> {
    return '';
  }

  // @ts-expect-error - `oncePerTick` skips by default
  @WithLock('key', { oncePerTick: true })
  async skippedTick(): Promise<number> {
    return 1;
  }

  // @ts-expect-error - the function has no result for a refused caller
  @WithLock('key', { onBusy: () => {} })
  async nothingInstead(): Promise<string> {
    return '';
  }

  // @ts-expect-error - the function may have no result for a refused caller
  @WithLock('key', { onBusy: async (error) => error.owner || undefined })
  async maybeInstead(): Promise<string> {
    return '';
  }

  @WithLock('key', { onBusy: () => 'busy' })
  async literalInstead(): Promise<'busy' | 'done'> {
    return 'done';
  }

  @WithLock('key', { oncePerTick: true, onBusy: () => 'busy' })
  async tickInstead(): Promise<string> {
    return '';
  }

  // @ts-expect-error - a skipped call resolves to undefined, also with a declared lock
  @WithLock.of(DECLARED.fixed, { onBusy: 'skip' })
  async skippedDeclared(): Promise<number> {
    return 1;
  }

  // @ts-expect-error - an unknown option
  @WithLock('key', { onBusy: 'skip', tll: 5_000 })
  async unknownOption(): Promise<void> {}
}

export class Led {
  @OnlyLeader('name')
  async sweep(): Promise<void> {}

  @OnlyLeader('name')
  async count(): Promise<number | undefined> {
    return 1;
  }

  // @ts-expect-error - a skipped call resolves to undefined
  @OnlyLeader('name')
  async skipped(): Promise<number> {
    return 1;
  }

  // @ts-expect-error - the method returns nothing, not a Promise
  @OnlyLeader('name')
  nothing(): void {}
}

expectTypeOf<Keys['ofArguments']>().toEqualTypeOf<(order: Order) => Promise<void>>();
expectTypeOf<Results['observable']>().toEqualTypeOf<() => Observable<number>>();

export const good: WithLockOptions[] = [
  {},
  { ttl: 1_000 },
  { retry: false },
  { retry: {} },
  { retry: { timeout: 1, attempts: 1, delay: 1, jitter: 1 } },
  { renew: false, onLost: 'ignore', instance: 'billing' },
  { onBusy: 'skip' },
  { onBusy: (error) => error.retryAfter },
  { onBusy: async (error: LockHeldError) => error.owner },
  { onBusy: (error) => error.holders.map(({ slot }) => slot) },
  { permits: 5 },
  { mode: 'shared' },
  { mode: 'exclusive', minHold: 5 },
];

export const bad: WithLockOptions[] = [
  // @ts-expect-error - `retry` is false or an object, not true
  { retry: true },
  // @ts-expect-error - `retry` is false or an object, not a number
  { retry: 3 },
  // @ts-expect-error - a ttl is a number of milliseconds
  { ttl: '5s' },
  // @ts-expect-error - an unknown value
  { onBusy: 'wait' },
  // @ts-expect-error - an unknown value
  { onLost: 'skip' },
  // @ts-expect-error - an unknown value
  { release: 'atOnce' },
  // @ts-expect-error - an unknown value: the option `permits` asks for permits
  { mode: 'permits' },
  // @ts-expect-error - `permits` is a number, not a string
  { permits: '5' },
  // @ts-expect-error - an unknown option
  { tll: 5_000 },
  // @ts-expect-error - `@WithLock` has no `signal`
  { signal: AbortSignal.timeout(1) },
  // @ts-expect-error - the parameter of `onBusy` is a LockHeldError
  { onBusy: (error: RangeError & { missing: true }) => error },
];

expectTypeOf<LockKey>().toEqualTypeOf<string | readonly string[]>();
expectTypeOf(currentLock).returns.toEqualTypeOf<LockHandle | undefined>();

export async function service(locks: LockService): Promise<void> {
  expectTypeOf(await locks.withLock('key', () => 1)).toEqualTypeOf<number>();
  expectTypeOf(await locks.withLock('key', async () => 'text')).toEqualTypeOf<string>();
  expectTypeOf(await locks.withLock('key', { ttl: 1_000 }, async (lock) => lock)).toEqualTypeOf<LockHandle>();
  expectTypeOf(await locks.withLock(['a', 'b'] as const, undefined, async () => {})).toEqualTypeOf<void>();
  expectTypeOf(
    await locks.withLock('key', async () => (Math.random() > 0.5 ? Date.now() : undefined)),
  ).toEqualTypeOf<number | undefined>();

  expectTypeOf(await locks.acquire('key')).toEqualTypeOf<LockHandle>();
  expectTypeOf(await locks.tryAcquire('key')).toEqualTypeOf<LockHandle | null>();
  expectTypeOf(locks.current()).toEqualTypeOf<LockHandle | undefined>();

  await using lock = await locks.acquire('key', { signal: AbortSignal.timeout(1) });
  expectTypeOf(lock.keys).toEqualTypeOf<readonly string[]>();
  expectTypeOf(lock.mode).toEqualTypeOf<LockMode>();
  expectTypeOf(lock.slot).toEqualTypeOf<number | undefined>();
  expectTypeOf(lock.slots).toEqualTypeOf<readonly number[] | undefined>();
  await locks.acquire('key', { permits: 5 });
  await locks.tryAcquire('key', { mode: 'shared' });
  await locks.withLock('key', { permits: 5 }, (held) => held.slot);
  await locks.withLock('key', { release: 'afterCommit' }, () => undefined);
  await locks.forceRelease('key', { id: lock.id });
  expectTypeOf((await locks.inspect('key')).holders).toEqualTypeOf<readonly LockHolder[]>();
  // @ts-expect-error - an id is a string
  await locks.forceRelease('key', { id: 7 });
  // @ts-expect-error - `acquire` has no `onLost`
  await locks.acquire('key', { onLost: 'ignore' });
  // @ts-expect-error - the caller releases the lock, so there is no `release`
  await locks.acquire('key', { release: 'afterCommit' });
  // @ts-expect-error - the caller releases the lock, so there is no `release`
  await locks.tryAcquire('key', { release: 'afterCommit' });
  // @ts-expect-error - `tryAcquire` makes one attempt, so it has no `retry`
  await locks.tryAcquire('key', { retry: false });
  // @ts-expect-error - `acquire` has no `onBusy`, it throws
  await locks.acquire('key', { onBusy: 'skip' });
  // @ts-expect-error - the task is missing
  await locks.withLock('key', { ttl: 1_000 });
  // @ts-expect-error - `keys` is read-only
  lock.keys = [];
}

const sentinel = { name: 'locks', sentinelRootNodes: [{ host: 'a', port: 26_379 }] };

/**
 * Clients of an application. The types accept a client by its structure, because of their packages only ioredis is a peer dependency.
 */
export const clients: RedlockModuleOptions[] = [
  { nodes: new Redis() },
  { nodes: new Cluster([]) },
  { nodes: [new Redis6(), new Redis6()] },
  { nodes: new Cluster6([]) },
  { nodes: new Valkey() },
  { nodes: new ValkeyCluster([]) },
  { nodes: createClient() },
  { nodes: createClient({ RESP: 2, commandOptions: { typeMapping: { 36: Buffer } } }) },
  { nodes: createCluster({ rootNodes: [] }) },
  { nodes: createSentinel(sentinel) },
  { nodes: createClient5() },
  { nodes: ['redis://a', createClient(), new Redis()] },
  // @ts-expect-error - a pool sends commands over several connections
  { nodes: createClientPool() },
  // @ts-expect-error - a Promise of a client
  { nodes: createClient().connect() },
];

export const options: RedlockModuleOptions[] = [
  { nodes: 'memory' },
  { nodes: 'redis://localhost' },
  { nodes: { host: 'localhost' } },
  { nodes: ['redis://a', { host: 'b', port: 1 }] as const },
  { nodes: 'redis://localhost', defaults: { ttl: 1_000, retry: false } },
  // @ts-expect-error - nodes are required
  {},
  // @ts-expect-error - an unknown option
  { nodes: 'memory', prefix: 'x' },
  // @ts-expect-error - an option of one lock, not of all locks
  { nodes: 'memory', defaults: { mode: 'shared' } },
  // @ts-expect-error - an option of one lock, not of all locks
  { nodes: 'memory', defaults: { permits: 5 } },
  // @ts-expect-error - an option of `@WithLock`
  { nodes: 'memory', defaults: { onBusy: 'skip' } },
];

RedlockModule.forRoot({ nodes: 'memory', name: 'billing', isGlobal: false });
RedlockModule.forRootAsync({ name: 'billing', useFactory: async () => ({ nodes: 'memory' }) });
// @ts-expect-error - the factory returns `node`, not `nodes`
RedlockModule.forRootAsync({ useFactory: () => ({ node: 'memory' }) });
