import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Injectable, type INestApplication } from '@nestjs/common';
import { AsyncLocalStorage } from 'node:async_hooks';
import { currentLock, Leader, LockHeldError, LockService, OnlyLeader, WithLock } from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

// A query builder (knex, mongoose) is a thenable that runs its query in `then`, once for each call of `then`.

const request = new AsyncLocalStorage<string>();

/** A query that runs when its `then` is called. */
class Query<T> implements PromiseLike<T> {
  /** The keys of the lock under which each run of the query was made. */
  readonly runs: (readonly string[] | undefined)[] = [];

  constructor(private readonly execute: () => T | PromiseLike<T>) {}

  then<A = T, B = never>(
    done?: ((value: T) => A | PromiseLike<A>) | null,
    failed?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): PromiseLike<A | B> {
    this.runs.push(currentLock()?.keys);
    return new Promise<T>((resolve) => resolve(this.execute())).then(done, failed);
  }
}

/** A Promise of a subclass that does its work on the first call of `then` (`p-lazy`). */
class LazyPromise<T> extends Promise<T> {
  static readonly runs: (readonly string[] | undefined)[] = [];

  override then<A = T, B = never>(...[done, failed]: Parameters<Promise<T>['then']>): Promise<A | B> {
    LazyPromise.runs.push(currentLock()?.keys);
    return super.then(done, failed) as Promise<A | B>;
  }
}

@Injectable()
class Service {
  started: Query<string> | undefined;

  @WithLock('method', { reentrant: true, retry: false })
  find<T>(query: PromiseLike<T>): Promise<T> {
    return query as Promise<T>;
  }

  @WithLock('method', { reentrant: true, retry: false })
  async nested(): Promise<boolean | undefined> {
    return currentLock('method')?.isHeld();
  }

  @WithLock('busy', { retry: false, onBusy: (error) => busy(error) })
  async refused(): Promise<unknown> {
    return undefined;
  }

  @OnlyLeader('thenables')
  sweep<T>(query: PromiseLike<T>): Promise<T> {
    return query as Promise<T>;
  }

  @Leader('thenables')
  lead(): PromiseLike<string> {
    return (this.started ??= new Query(() => new Promise<string>(() => undefined)));
  }
}

let busy: (error: LockHeldError) => unknown;
let app: INestApplication;
let service: Service;
let locks: LockService;
beforeAll(async () => {
  app = await startApp({ providers: [Service] }, { nodes: 'memory', shutdownTimeout: 10 });
  service = app.get(Service);
  locks = app.get(LockService);
});
afterAll(() => app.close());

describe('a thenable that begins its work when it is awaited', () => {
  test('the query of a locked method runs once, under the lock', async () => {
    const query = new Query(() => 7);
    await expect(service.find(query)).resolves.toBe(7);
    expect(query.runs).toEqual([['method']]);
  });

  test('a nested call in the query of a locked method joins the lock', async () => {
    await expect(service.find(new Query(() => service.nested()))).resolves.toBe(true);
  });

  test('the query of a task of `withLock` runs once, under the lock', async () => {
    const query = new Query(() => 7);
    await expect(locks.withLock('task', () => query as unknown as Promise<number>)).resolves.toBe(7);
    expect(query.runs).toEqual([['task']]);
  });

  test('a query that resolves to a query runs under the lock', async () => {
    const inner = new Query(() => 7);
    await expect(
      locks.withLock('task', () => new Query(() => inner) as unknown as Promise<number>),
    ).resolves.toBe(7);
    expect(inner.runs).toEqual([['task']]);
  });

  test('a lazy Promise of a subclass does its work once, under the lock', async () => {
    const lazy = new LazyPromise<number>((resolve) => resolve(7));
    await expect(locks.withLock('task', () => lazy)).resolves.toBe(7);
    expect(LazyPromise.runs).toEqual([['task']]);
  });

  test('the error of a query reaches the caller', async () => {
    const query = new Query(() => Promise.reject(new Error('of the query')));
    await expect(service.find(query)).rejects.toThrow('of the query');
    await expect(locks.withLock('task', () => query as unknown as Promise<never>)).rejects.toThrow(
      'of the query',
    );
  });

  test('the query of a leader runs once, under the lock of its term', async () => {
    await until(() => service.started !== undefined);
    expect(service.started?.runs).toEqual([['leader:thenables']]);
  });

  test('the query of a method with `@OnlyLeader` runs once, under the lock of the term', async () => {
    await until(() => locks.leader('thenables').isLeader());
    const query = new Query(() => 7);
    await expect(service.sweep(query)).resolves.toBe(7);
    expect(query.runs).toEqual([['leader:thenables']]);
  });

  test('the query of `onBusy` runs once, in the context of the caller', async () => {
    const query = new Query(() => request.getStore());
    busy = () => query;
    await locks.withLock('busy', () =>
      request.run('request 1', () => expect(service.refused()).resolves.toBe('request 1')),
    );
    expect(query.runs).toHaveLength(1);
  });
});
