// `npm run typecheck` compiles this file, and nothing runs it. `@ts-expect-error` marks the lines that must not compile. A
// mark on a line that compiles is an error.
import { expectTypeOf } from 'expect-type';
import type { Observable } from 'rxjs';
import {
  type DeclaredLock,
  type DeclaredLocks,
  defineLocks,
  type KeyedLock,
  type LockHandle,
  type LockInfo,
  type LockService,
  RedlockModule,
  WithLock,
} from '../../lib/index.js';

interface Order {
  readonly id: number;
}

export const locks = defineLocks({
  'order:settle': {
    key: (id: number) => `order:${id}`,
    ttl: 30_000,
    team: 'payments',
    about: 'one settlement at a time',
    onBusy: (error) => error.retryAfter,
  },
  'tenant:report': { key: (tenant: string) => `report:${tenant}`, permits: 5 },
  transfer: { key: (from: string, to: string) => [`account:${from}`, `account:${to}`] },
  optional: { key: (id?: string) => id ?? 'none' },
  accounts: { key: (...ids: string[]) => ids },
  'clean-up': { key: 'clean-up', oncePerTick: true },
  both: { key: ['a', 'b'], mode: 'exclusive', instance: 'billing' },
});

expectTypeOf(locks['order:settle']).toEqualTypeOf<DeclaredLock<[id: number]>>();
expectTypeOf(locks['clean-up']).toEqualTypeOf<DeclaredLock<[]>>();
expectTypeOf(locks['order:settle'].for(42)).toEqualTypeOf<KeyedLock>();
export const any: DeclaredLocks = locks;

// @ts-expect-error - a typo in the name
export const typo = locks['order:setle'];
// @ts-expect-error - the object of locks is read-only
locks['clean-up'] = locks.both;

defineLocks({
  // @ts-expect-error - an unknown option
  unknown: { key: 'a', tll: 1_000 },
});
defineLocks({
  // @ts-expect-error - a declared lock has no `label`, because its name is the label
  labelled: { key: 'a', label: 'b' },
});
defineLocks({
  // @ts-expect-error - a ttl is a number of milliseconds
  text: { key: 'a', ttl: '1s' },
});
defineLocks({
  // @ts-expect-error - a lock without a key
  keyless: { ttl: 1_000 },
});
defineLocks({
  // @ts-expect-error - a key is a string, not a number
  number: { key: (order: Order) => order.id },
});

export class Methods {
  @WithLock.of(locks['order:settle'])
  async settle(_id: number): Promise<void> {}

  @WithLock.of(locks['order:settle'], { onBusy: 'skip', retry: false })
  async more(_id: number, _times: number): Promise<void> {}

  @WithLock.of(locks['clean-up'])
  async fixed(_order: Order): Promise<void> {}

  @WithLock.of(locks.accounts)
  async accounts(..._ids: string[]): Promise<void> {}

  @WithLock.of(locks.transfer)
  observable(_from: string, _to: string): Observable<number> {
    throw new Error();
  }

  // @ts-expect-error - not the type that the key function takes
  @WithLock.of(locks['order:settle'])
  async otherType(_id: string): Promise<void> {}

  // @ts-expect-error - the key function has more parameters than the method
  @WithLock.of(locks.transfer)
  async fewer(_from: string): Promise<void> {}

  // @ts-expect-error - the method returns no Promise
  @WithLock.of(locks['clean-up'])
  now(): void {}

  // @ts-expect-error - only the declaration can set the ttl
  @WithLock.of(locks['clean-up'], { ttl: 1_000 })
  async ttl(): Promise<void> {}

  // @ts-expect-error - a typo in the name
  @WithLock.of(locks['clean-upp'])
  async typo(): Promise<void> {}

  // @ts-expect-error - `@WithLock.of` takes a declared lock, not a key
  @WithLock.of('clean-up')
  async key(): Promise<void> {}
}

export async function calls(service: LockService): Promise<void> {
  expectTypeOf(await service.acquire(locks['order:settle'], 42)).toEqualTypeOf<LockHandle>();
  expectTypeOf(await service.tryAcquire(locks['clean-up'])).toEqualTypeOf<LockHandle | null>();
  expectTypeOf(await service.withLock(locks['order:settle'], 42, () => 1)).toEqualTypeOf<number>();
  expectTypeOf(await service.withLock(locks['clean-up'], async () => 'text')).toEqualTypeOf<string>();
  expectTypeOf(await service.withLock(locks.optional, undefined, () => 1)).toEqualTypeOf<number>();
  expectTypeOf(await service.withLock(locks.transfer, 'a', 'b', (lock) => lock)).toEqualTypeOf<LockHandle>();
  expectTypeOf(await service.inspect(locks['order:settle'], 42)).toEqualTypeOf<LockInfo>();
  expectTypeOf(await service.forceRelease(locks['order:settle'], 42)).toEqualTypeOf<boolean>();
  await service.acquire(locks.optional);
  await service.acquire(locks.accounts, 'a', 'b', 'c');
  await service.acquire(locks['order:settle'].for(42), { signal: AbortSignal.timeout(1), retry: false });
  await service.withLock(locks['order:settle'].for(42), { onLost: 'ignore' }, (lock) => lock.signal);
  await service.forceRelease(locks['order:settle'].for(42), { id: 'id' });
  service.current(locks['order:settle'], 42);

  // @ts-expect-error - not the type that the key function takes
  await service.acquire(locks['order:settle'], '42');
  // @ts-expect-error - the argument of the key function is missing
  await service.acquire(locks['order:settle']);
  // @ts-expect-error - too many arguments
  await service.acquire(locks['order:settle'], 42, 43);
  // @ts-expect-error - a call with options needs `for`
  await service.acquire(locks['clean-up'], { retry: false });
  // @ts-expect-error - only the declaration can set the ttl
  await service.acquire(locks['order:settle'].for(42), { ttl: 1_000 });
  // @ts-expect-error - not the type that the key function takes
  locks['order:settle'].for('42');
  // @ts-expect-error - the task is missing
  await service.withLock(locks['order:settle'], 42);
  // @ts-expect-error - not the type that the key function takes
  await service.withLock(locks['order:settle'], '42', () => 1);
  // @ts-expect-error - not the type that the key function takes
  await service.inspect(locks['order:settle'], '42');
  // @ts-expect-error - a typo in the name
  await service.acquire(locks['order:settel'], 42);
}

RedlockModule.forRoot({
  nodes: 'memory',
  locks,
  strict: true,
  overrides: { 'order:settle': { ttl: 60_000, onBusy: 'skip' }, 'tenant:report': { permits: 3 } },
});
// @ts-expect-error - an option that cannot be overridden
RedlockModule.forRoot({ nodes: 'memory', locks, overrides: { 'order:settle': { minHold: 1 } } });
// @ts-expect-error - locks without `defineLocks`
RedlockModule.forRoot({ nodes: 'memory', locks: { a: { key: 'a' } } });
