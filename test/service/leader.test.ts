import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { Injectable, type LoggerService, Scope, type Type } from '@nestjs/common';
import { Interval } from '@nestjs/schedule';
import { type ChildProcess, spawn } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import {
  currentLock,
  Leader,
  LEADER_CHANNEL,
  type LeaderEvent,
  type LeaderTerm,
  type Leadership,
  type LockEvent,
  LockLostError,
  LockService,
  OnlyLeader,
  RedlockModule,
} from '../../lib/index.js';
import { type FencedAnswer, fencedWrite, StaleTokenError } from '../../lib/fencing/index.js';
import { bundled } from '../support/bundle.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { LogLines } from '../support/log-lines.js';
import { startPlainApp } from '../support/nest-app.js';
import { PATIENT } from '../support/patience.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { undisturbed } from '../support/undisturbed.js';
import { until } from '../support/until.js';

/** A ttl in milliseconds that is long enough for a renewal in time, even if the machine stalls for a moment. */
const TTL = 6_000;

/** Leads until its term ends, unless a test gives other `work`. */
@Injectable()
class Consumer {
  readonly terms: LeaderTerm[] = [];
  /** Number of runs that have not ended. */
  running = 0;
  work: (term: LeaderTerm) => Promise<unknown> = untilAborted;

  @Leader('consumer', { ttl: TTL })
  async lead(term: LeaderTerm): Promise<void> {
    this.terms.push(term);
    this.running += 1;
    try {
      await this.work(term);
    } finally {
      this.running -= 1;
    }
  }

  @OnlyLeader('consumer')
  async sweep<T>(task: () => Promise<T> | T): Promise<T> {
    return task();
  }
}

async function untilAborted({ signal }: LeaderTerm): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}

interface Instance {
  readonly consumer: Consumer;
  readonly locks: LockService;
  readonly leadership: Leadership;
  readonly events: LockEvent[];
  close(): Promise<void>;
}

let redis: RedisServer;
const instances: Instance[] = [];
beforeAll(async () => {
  redis = await startRedis();
});
afterEach(async () => {
  await Promise.all(instances.splice(0).map((instance) => instance.close()));
  await redis.client().flushall();
});
afterAll(() => redis.stop());

async function start(
  owner: string,
  { work, logger }: { readonly work?: Consumer['work']; readonly logger?: LoggerService } = {},
): Promise<Instance> {
  const events: LockEvent[] = [];
  const options = {
    nodes: redis.url,
    owner,
    onEvent: (event: LockEvent) => events.push(event),
    ...PATIENT,
  };
  const app = await startPlainApp(
    { imports: [RedlockModule.forRoot(options)], providers: [Consumer] },
    {
      ...(logger && { logger }),
      prepare: (created) => {
        if (work) created.get(Consumer).work = work;
      },
    },
  );
  const locks = app.get(LockService);
  const instance: Instance = {
    consumer: app.get(Consumer),
    locks,
    leadership: locks.leader('consumer'),
    events,
    close: () => app.close(),
  };
  instances.push(instance);
  return instance;
}

const leaders = (): Instance[] => instances.filter(({ leadership }) => leadership.isLeader());

/** Resolves to the only leader, as soon as there is one. */
async function leader(): Promise<Instance> {
  await until(() => leaders().length > 0);
  expect(leaders()).toHaveLength(1);
  return leaders()[0]!;
}

describe('the leader', () => {
  test('only one instance leads, and after it resigns the next leader has a larger fencing token', async () => {
    await Promise.all(['a', 'b', 'c'].map((owner) => start(owner)));
    const first = await leader();
    const [term] = first.consumer.terms;
    expect(term).toMatchObject({ keys: ['leader:consumer'], signal: { aborted: false } });

    await first.leadership.resign();
    expect(first.leadership.isLeader()).toBe(false);
    expect(term?.signal.reason).toMatchObject({ message: 'the process resigns' });
    const second = await leader();
    expect(second).not.toBe(first);
    expect(second.consumer.terms[0]!.fencingToken).toBeGreaterThan(term!.fencingToken);
    expect(instances.map(({ consumer }) => consumer.running).toSorted()).toEqual([0, 0, 1]);
  });

  test('the leader hands over to another instance at shutdown, after its method has settled', async () => {
    const release = gate();
    let settled = false;
    const first = await start('a', {
      work: async (term) => {
        await untilAborted(term);
        await release.opened;
        settled = true;
      },
    });
    await leader();
    const second = await start('b');
    const closed = first.close();
    const [term] = first.consumer.terms;
    await until(() => term!.signal.aborted);
    expect(term!.signal.reason).toMatchObject({ message: 'the application is shutting down' });
    expect(await second.leadership.current()).toMatchObject({ owner: 'a' });
    release.open();
    await closed;
    expect(settled).toBe(true);
    await until(() => second.leadership.isLeader());
  });

  test('a leader whose lock is lost is notified, and campaigns again after its method has settled', async () => {
    const release = gate();
    const only = await start('a', {
      work: async (term) => {
        await untilAborted(term);
        await release.opened;
      },
    });
    await leader();
    await only.locks.forceRelease('leader:consumer');
    const [lost] = only.consumer.terms;
    await until(() => lost!.signal.aborted);
    expect(lost!.signal.reason).toBeInstanceOf(LockLostError);
    expect(only.leadership.isLeader()).toBe(false);
    // The key is free for any caller now, but this process must not campaign until its method has settled.
    expect(await only.locks.tryAcquire('leader:consumer').then((lock) => lock?.release())).toBeUndefined();
    expect(only.consumer.terms).toHaveLength(1);
    release.open();
    await until(() => only.consumer.terms.length === 2);
    expect(only.consumer.terms[1]!.fencingToken).toBeGreaterThan(lost!.fencingToken);
  });

  test('the leader resigns when its method returns, and leads again only after `campaign()`', async () => {
    const ended: unknown[] = [];
    const only = await start('a', {
      work: ({ signal }) => {
        signal.addEventListener('abort', () => ended.push(signal.reason));
        return Promise.resolve();
      },
    });
    await until(() => only.consumer.terms.length === 1 && ended.length === 1);
    await until(async () => (await only.leadership.current()) === undefined);
    expect(String(ended[0])).toContain('Consumer.lead has returned');
    only.consumer.work = untilAborted;
    only.leadership.campaign();
    only.leadership.campaign();
    await leader();
    expect(only.consumer.terms).toHaveLength(2);
  });

  test('the leader resigns when its method throws, logs the error, and campaigns again after a second', async () => {
    const log = new LogLines('Leader');
    const began = performance.now();
    let hasThrown = false;
    const work = (term: LeaderTerm): Promise<unknown> => {
      if (hasThrown) return untilAborted(term);
      hasThrown = true;
      return Promise.reject(new Error('no broker'));
    };
    const only = await start('a', { logger: log, work });
    await until(() => only.consumer.terms.length === 2 && only.leadership.isLeader());
    // Timers may fire a millisecond early.
    expect(performance.now() - began).toBeGreaterThan(990);
    expect(log.of('error')).toEqual([
      expect.stringContaining('the method threw. The process campaigns again after a pause'),
    ]);
  });

  test("`resign()` in the leader's own method ends the term without a deadlock", async () => {
    let resigned = false;
    const only = await start('a', {
      work: async (term) => {
        await only.leadership.resign();
        resigned = term.signal.aborted;
      },
    });
    await until(async () => resigned && (await only.leadership.current()) === undefined);
    expect(only.consumer).toMatchObject({ running: 0, terms: [{ signal: { aborted: true } }] });
  });

  test('the leader campaigns again when `campaign()` is called at the end of its term', async () => {
    const only = await start('a', {
      work: ({ signal }) => {
        signal.addEventListener('abort', () => only.leadership.campaign());
        if (only.consumer.terms.length > 1) only.consumer.work = untilAborted;
        return Promise.resolve();
      },
    });
    await until(() => only.consumer.terms.length > 2 && only.leadership.isLeader());
    expect(only.consumer.running).toBe(1);
  });

  test('the leader campaigns again after its method throws any value', async () => {
    const only = await start('a', { work: () => Promise.reject(Object.create(null)) });
    await until(() => only.consumer.terms.length === 1);
    only.consumer.work = untilAborted;
    await until(() => only.leadership.isLeader());
    expect(only.events.find((event) => event.type === 'leader' && event.reason === 'threw')).toBeDefined();
  });

  test('an instance that resigns during its campaign does not become the leader', async () => {
    const first = await start('a');
    await leader();
    const second = await start('b');
    await second.leadership.resign();
    await first.leadership.resign();
    await until(async () => (await first.leadership.current()) === undefined);
    expect(second.consumer.terms).toHaveLength(0);
  });

  test('changes of leadership are reported on the diagnostics channel and to `onEvent` of the module', async () => {
    const published: LeaderEvent[] = [];
    const listen = (event: unknown): void => void published.push(event as LeaderEvent);
    subscribe(LEADER_CHANNEL, listen);
    try {
      const only = await start('a');
      await leader();
      await only.leadership.resign();
      const { fencingToken } = only.consumer.terms[0]!;
      const about = { leader: 'consumer', method: 'Consumer.lead' };
      expect(published).toEqual([
        { ...about, isLeader: false },
        { ...about, isLeader: true, fencingToken },
        { ...about, isLeader: false, fencingToken, reason: 'resigned' },
      ]);
      expect(only.events.filter(({ type }) => type === 'leader')).toEqual(
        published.map((event) => ({ type: 'leader', ...event })),
      );
    } finally {
      unsubscribe(LEADER_CHANNEL, listen);
    }
  });

  test('`current()` and `changes()` show the leader even in a process that never campaigns', async () => {
    const only = await start('a');
    await leader();
    const app = await startPlainApp({ imports: [RedlockModule.forRoot({ nodes: redis.url, ...PATIENT })] });
    const elsewhere = app.get(LockService).leader('consumer');
    expect(elsewhere.isLeader()).toBe(false);
    const { fencingToken } = only.consumer.terms[0]!;
    const shown = { owner: 'a', since: expect.any(Date), fencingToken };
    expect(await elsewhere.current()).toEqual(shown);
    expect(() => elsewhere.campaign()).toThrow(
      expect.objectContaining({
        code: 'NO_LEADER',
        message: expect.stringContaining('The application has no @Leader at all'),
      }),
    );
    await elsewhere.resign();

    const changes = elsewhere.changes();
    expect(await changes.next()).toEqual({ done: false, value: shown });
    await only.leadership.resign();
    expect(await changes.next()).toEqual({ done: false, value: undefined });
    const last = changes.next();
    await app.close();
    expect(await last).toEqual({ done: true, value: undefined });
  });
});

test('`changes()` shows at once, in the process that led, that its lock is released', async () => {
  const { leadership, consumer } = await start('a');
  const changes = leadership.changes();
  const took: number[] = [];
  // Another process's release shows after a second. The fastest of several counts, because the machine may be busy.
  while (took.length < 5 && !took.some((ms) => ms < 500)) {
    await until(() => consumer.running === 1);
    expect((await changes.next()).value).toMatchObject({ owner: 'a' });
    const next = changes.next();
    await leadership.current();
    await leadership.resign();
    const began = performance.now();
    expect((await next).value).toBeUndefined();
    took.push(performance.now() - began);
    leadership.campaign();
  }
  expect(Math.min(...took)).toBeLessThan(500);
});

describe('@OnlyLeader', () => {
  test("`@OnlyLeader` runs a method only in the leading instance, under the lock of the leader's term", async () => {
    await start('a');
    const first = await leader();
    const second = await start('b');
    const seen = (): unknown => currentLock()?.fencingToken;
    expect(await first.consumer.sweep(seen)).toBe(first.consumer.terms[0]!.fencingToken);
    expect(await second.consumer.sweep(seen)).toBeUndefined();
    await expect(first.consumer.sweep(() => Promise.reject(new Error('full')))).rejects.toThrow('full');
  });

  test('the next leader waits until a running `@OnlyLeader` method of the old leader has settled', async () => {
    await start('a');
    const first = await leader();
    const second = await start('b');
    const release = gate();
    const swept = first.consumer.sweep(() => release.opened);
    const resigned = first.leadership.resign();
    await until(() => first.consumer.running === 0);
    expect(await second.leadership.current()).toMatchObject({ owner: 'a' });
    expect(await first.consumer.sweep(() => 'another')).toBeUndefined();
    release.open();
    await Promise.all([swept, resigned]);
    await until(() => second.leadership.isLeader());
  });
});

test('`resign()` in an `@OnlyLeader` method does not deadlock while another `resign()` waits for that method', async () => {
  await start('a');
  const first = await leader();
  const ends = gate();
  const swept = first.consumer.sweep(async () => {
    await ends.opened;
    await first.leadership.resign();
    return 'resigned';
  });
  const resigned = first.leadership.resign();
  await until(() => first.consumer.running === 0);
  ends.open();
  expect(await swept).toBe('resigned');
  await resigned;
  await until(async () => (await first.leadership.current()) === undefined);
});

describe('start-up', () => {
  const failing = (...providers: Type[]): Promise<unknown> =>
    startPlainApp(
      { imports: [RedlockModule.forRoot({ nodes: 'memory' })], providers },
      { logger: new LogLines() },
    );

  test('start-up refuses an `@OnlyLeader` method when no `@Leader` method has the same name', async () => {
    class Cleaner {
      @Interval(60_000)
      @OnlyLeader('consumers')
      async sweep(): Promise<void> {}
    }
    await expect(failing(Consumer, Cleaner)).rejects.toThrow(
      '@OnlyLeader("consumers") of Cleaner.sweep: no method of this application has @Leader with that name, so this ' +
        'process never leads. The names with @Leader are "consumer".',
    );
  });

  test('start-up refuses two `@Leader` methods with the same name', async () => {
    class Other {
      @Leader('consumer')
      async lead(): Promise<void> {}
    }
    await expect(failing(Consumer, Other)).rejects.toThrow(
      '@Leader("consumer") of Other.lead: another method of this application has @Leader with that name',
    );
  });

  test('start-up refuses `@Leader` on a request-scoped class', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class OfRequest {
      @Leader('one')
      async lead(): Promise<void> {}
    }
    await expect(failing(OfRequest)).rejects.toThrow('the class is request-scoped or transient');
  });
});

describe('the definition of a class', () => {
  test.each([
    [Leader(''), "@Leader of Bad.lead: Expected `name` to be a string that is not empty, got ''"],
    [
      Leader('a', { ttl: 1 }),
      '@Leader of Bad.lead: Expected `ttl` to be a whole number of milliseconds, at least 10',
    ],
    [
      Leader('a', { renew: false } as never),
      "@Leader of Bad.lead: Expected `renew` to be `true` or 'thread', got false",
    ],
    [
      Leader('a', { renew: 'thread', maxBlocked: 5 }),
      '@Leader of Bad.lead: Expected `maxBlocked` to be a whole number of milliseconds, at least 1000, got 5',
    ],
    [
      Leader('a', { maxBlocked: 5_000 }),
      "@Leader of Bad.lead: Expected `maxBlocked` with `renew: 'thread'`, got `renew: true`",
    ],
    [Leader('a', { retry: false } as never), '@Leader of Bad.lead: Unknown option `retry` in `@Leader`'],
    [OnlyLeader('a', { instance: '' }), '@OnlyLeader of Bad.lead: Expected `instance` to be the `name`'],
  ])(
    'a leader decorator with invalid options throws when the class is defined (case %#)',
    (decorate, message) => {
      class Bad {
        async lead(): Promise<void> {}
      }
      const descriptor = Object.getOwnPropertyDescriptor(Bad.prototype, 'lead')!;
      expect(() => (decorate as MethodDecorator)(Bad.prototype, 'lead', descriptor)).toThrow(message);
    },
  );

  test.each([
    ['@Leader', Leader('a')],
    ['@OnlyLeader', OnlyLeader('a')],
  ])(
    '%s on a static method throws when the class is defined, and the error names the remedy',
    (decorator, decorate) => {
      class Bad {
        static async lead(): Promise<void> {}
        async other(): Promise<void> {}
      }
      const descriptor = Object.getOwnPropertyDescriptor(Bad, 'lead')!;
      expect(() => (decorate as MethodDecorator)(Bad, 'lead', descriptor)).toThrow(
        new TypeError(
          `${decorator} works only on instance methods, and \`lead\` is not an instance method. Remove \`static\``,
        ),
      );
    },
  );
});

describe('a separate process', () => {
  const SHORT_TTL = 1_500;
  /** A waiter that does not know the end of the ttl asks only after five seconds, which exceeds this limit. */
  const SUCCEEDED_MS = 4_500;
  let file: string;
  beforeAll(async () => {
    file = await bundled('test/fixtures/leader-app.ts');
  });

  function run(): { readonly child: ChildProcess; readonly lines: string[] } {
    const child = spawn(process.execPath, [file], {
      env: { ...process.env, NODE_OPTIONS: '', REDIS_URL: redis.url, TTL: String(SHORT_TTL) },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    cleanUpAfterTests(async () => void child.kill('SIGKILL'));
    const lines: string[] = [];
    createInterface(child.stdout!).on('line', (line) => lines.push(line));
    return { child, lines };
  }
  const leads = (line: string | undefined): boolean => line?.startsWith('leads') ?? false;

  test("another process becomes the leader when the ttl of a killed leader's lock ends", async () => {
    const looker = redis.client();
    const succession = async (): Promise<number> => {
      const first = run();
      await until(() => leads(first.lines[0]));
      const second = run();
      await until(async () => Number(await looker.exists('lock:{leader:consumer}:q')) === 1);
      const killed = performance.now();
      first.child.kill('SIGKILL');
      await until(() => leads(second.lines[0]));
      const took = performance.now() - killed;
      second.child.kill('SIGKILL');
      await once(second.child, 'exit');
      return took;
    };
    expect(await undisturbed(SUCCEEDED_MS, succession, () => looker.ping())).toBeLessThan(SUCCEEDED_MS);
  });

  test('a leader that was paused beyond its ttl sees that it no longer leads, and `fencedWrite` refuses its token (S10)', async () => {
    const paused = run();
    await until(() => leads(paused.lines[0]));
    const next = run();
    await until(async () => Number(await redis.client().exists('lock:{leader:consumer}:q')) === 1);
    paused.child.kill('SIGSTOP');
    await until(() => leads(next.lines[0]));
    paused.child.kill('SIGCONT');
    await until(() => paused.lines.some((line) => line.startsWith('believes')));
    expect(paused.lines).toContain('believes false');
    await until(() => paused.lines.includes('lost LockLostError'));

    const [stale, fresh] = [paused, next].map(({ lines }) => ({
      keys: ['leader:consumer'],
      fencingToken: Number(lines[0]!.split(' ')[1]),
    }));
    let highest = 0;
    const write = (token: number): Promise<FencedAnswer> => {
      const accepted = token >= highest;
      highest = Math.max(highest, token);
      return Promise.resolve({ accepted, highest });
    };
    await fencedWrite(fresh!, write);
    await expect(fencedWrite(stale!, write)).rejects.toBeInstanceOf(StaleTokenError);
    for (const { child } of [paused, next]) {
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
  });
});

/** A test opens the gate when the waiting code may continue. */
function gate(): { readonly open: () => void; readonly opened: Promise<void> } {
  let open!: () => void;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { open, opened };
}
