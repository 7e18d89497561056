import type { StrategyName } from './strategies/strategy-names.js';
import type { Expectation } from './judge.js';
import type { SalePlan } from './flash-sale.js';
import type { LabEvent, Outcome } from './lab-event.js';
import {
  eachMissesAnotherNode,
  failOver,
  holderIsKilled,
  holderIsPaused,
  jobOutlastsTtl,
  killedBetweenTwoCommands,
  muchToDispatch,
  nodeForgets,
  nodesGoAndReturn,
  nothingHappens,
  playground,
  readersKeepComing,
  replyComesLate,
  type Situation,
} from './situations.js';
import type { StagePlan } from './stage.js';

interface Run {
  readonly title: string;
  readonly expected: Expectation;
  /** Describes the result in one sentence. */
  readonly tell: (outcome: Outcome, events: readonly LabEvent[]) => string;
  /** True if the run needs a redis-server, because the built-in js-redis-server has no replicas. */
  readonly needsRealRedis?: boolean;
}

/** A run of the batch scheduler with a strategy in a situation. */
export interface DispatchRun extends Run {
  readonly plan: StagePlan;
  readonly situation: Situation;
}

/** A run of the flash sale, an example without the batch scheduler. */
export interface SaleRun extends Run {
  readonly sale: SalePlan;
}

export type Part = DispatchRun | SaleRun;

export interface Scenario {
  readonly number: number;
  readonly title: string;
  readonly parts: readonly Part[];
}

const INSTANCES = 3;

function plan(strategy: StrategyName, parts: Partial<StagePlan> = {}): StagePlan {
  return { strategy, ttl: 1_500, work: 500, instances: INSTANCES, store: 'redis', nodes: 1, ...parts };
}

/**
 * Ttl and time of work of a holder that the lab pauses. The work is long: the lab must hold back the write of the
 * holder before the work ends, even if the machine is so busy that the lab reacts late.
 */
const PAUSE = { ttl: 2_000, work: 1_000 };

/** Ttl of locks with renewal. These locks must not end while a busy machine is paused for some seconds. */
const RENEWED = { ttl: 6_000 };

const twoHolders = { duplicates: 'some', lost: 'none', overlaps: 'some' } satisfies Expectation;
const fine = { duplicates: 'none', lost: 'none' } satisfies Expectation;

const tellDuplicates = ({ duplicates, overlaps }: Outcome): string =>
  `${times(overlaps, 'two held the lock at once', 'two held the lock at once, %s times')}; ${duplicates} duplicates`;

const tellStuck = ({ skips }: Outcome): string =>
  `the key has no ttl: ${skips} attempts were refused, and nothing was ever dispatched again`;

const tellFine = ({ pushes, refused, unavailable, skips }: Outcome): string =>
  [
    `${pushes} tasks pushed once each`,
    refused > 0 ? times(refused, 'the late write was refused', '%s late writes were refused') : '',
    unavailable > 0
      ? times(unavailable, 'one attempt had too few votes', '%s attempts had too few votes')
      : '',
    skips > 0 ? times(skips, 'one skip', '%s skips') : '',
  ]
    .filter(Boolean)
    .join('; ');

// Each run from `noLock` to `starved` shows a situation in which a method without `@WithLock` fails. Scenarios 10 and 15
// repeat these situations with `@WithLock`.

const noLock: DispatchRun = {
  title: 'no lock',
  plan: plan('none', { work: 600 }),
  situation: nothingHappens,
  expected: { duplicates: 'some', lost: 'none' },
  tell: ({ tasks, pushes, duplicates }) =>
    `${tasks} tasks became ${pushes} jobs; ${duplicates} are duplicates`,
};

const setnx: DispatchRun = {
  title: 'SETNX without a ttl, holder killed',
  plan: plan('setnx', { work: 1_000 }),
  situation: holderIsKilled,
  expected: { duplicates: 'none', lost: 'all', recovery: 'never' },
  tell: tellStuck,
};

const setnxThenExpire: DispatchRun = {
  title: 'SETNX, then EXPIRE, killed in between',
  plan: plan('setnx-expire', { work: 500 }),
  situation: killedBetweenTwoCommands,
  expected: { duplicates: 'none', lost: 'all', recovery: 'never' },
  tell: tellStuck,
};

const plainDelete: DispatchRun = {
  title: 'SET NX PX, released by DEL, job longer than the ttl',
  plan: plan('plain-delete', { ttl: 2_000, work: 3_000 }),
  situation: jobOutlastsTtl,
  expected: { ...twoHolders, grantedTwice: 'some' },
  tell: (outcome) =>
    `${times(outcome.grantedTwice, 'a late DEL deleted the lock of another holder', 'late DELs deleted the lock of another holder %s times')}; ${outcome.duplicates} duplicates`,
};

const ownerId: DispatchRun = {
  title: 'owner id, no renewal, job longer than the ttl',
  plan: plan('owner-id', { ttl: 1_000, work: 3_000 }),
  situation: jobOutlastsTtl,
  expected: twoHolders,
  tell: tellDuplicates,
};

const lateReply: DispatchRun = {
  title: 'the answer comes after the ttl, elapsed time not checked',
  plan: plan('owner-id', { ttl: 1_000, work: 700 }),
  situation: replyComesLate,
  expected: twoHolders,
  tell: tellDuplicates,
};

const replica: DispatchRun = {
  title: 'asynchronous replica, fail-over before the key is copied',
  plan: plan('owner-id', { ttl: 10_000, work: 4_000, nodes: 'replicated' }),
  situation: failOver,
  expected: twoHolders,
  tell: tellDuplicates,
  needsRealRedis: true,
};

const paused: DispatchRun = {
  title: 'holder paused past its ttl, then writes',
  plan: plan('owner-id', PAUSE),
  situation: holderIsPaused,
  expected: { duplicates: 'some', doneTwice: 'some', lost: 'none' },
  tell: ({ duplicates, doneTwice }) =>
    `the stale write went through: ${duplicates} duplicates; ${times(doneTwice, 'one task was done twice', '%s tasks were done twice')}`,
};

const wiped: DispatchRun = {
  title: 'Redlock without restart guard, a granting node wiped',
  plan: plan('redlock-unguarded', { ttl: 5_000, work: 3_000, nodes: 5 }),
  situation: nodeForgets,
  expected: twoHolders,
  tell: tellDuplicates,
};

const counted: DispatchRun = {
  title: 'two at a time, counted on each of three nodes',
  plan: plan('counted-per-node', { ttl: 3_000, work: 1_500, nodes: 3, batch: 2, rule: { atOnce: 2 } }),
  situation: eachMissesAnotherNode,
  expected: { ...fine, tooMany: 'some' },
  tell: ({ tooMany }) =>
    `${times(tooMany, 'a third holder came in beside two', 'a third holder came in beside two, %s times')}; no node had counted three holders`,
};

const starved: DispatchRun = {
  title: 'readers acquire whenever there is no writer',
  plan: plan('readers-first', {
    ...RENEWED,
    work: 900,
    instances: INSTANCES + 1,
    nodes: 3,
    batch: 1,
    // A reader reads again immediately.
    every: 20,
    rule: { atOnce: INSTANCES, writer: `instance-${INSTANCES + 1}` },
  }),
  situation: readersKeepComing,
  expected: { ...fine, tooMany: 'none', overtakes: 'some' },
  tell: ({ waited = 0, overtakes }) =>
    `the writer waited ${seconds(waited)}, until no more readers came; ${overtakes} readers that came later acquired before it`,
};

const breathless: DispatchRun = {
  title: '@WithLock, a job that blocks its event loop for three times the ttl',
  plan: plan('with-lock', { ttl: 3_000, work: 9_000, blocked: 'instance-1' }),
  situation: jobOutlastsTtl,
  expected: { ...fine, overlaps: 'some' },
  tell: ({ overlaps, pushes }) =>
    `nothing renewed the lock, and another one began the same work (${times(overlaps, 'once', '%s times')}); ` +
    `the late one found its lock lost: ${pushes} tasks pushed once each`,
};

/** Makes a run of the same situation under `@WithLock`. */
function cured(
  part: DispatchRun,
  changes: Partial<DispatchRun> = {},
  settings: Partial<StagePlan> = {},
): DispatchRun {
  return {
    ...part,
    title: `@WithLock: ${part.title}`,
    plan: { ...part.plan, strategy: 'with-lock', ...settings },
    expected: fine,
    tell: tellFine,
    ...changes,
  };
}

const refusedByToken = { ...fine, refused: 'some' } satisfies Expectation;
const guarded = cured(wiped, { title: 'the same with @WithLock and its restart guard' });

const nodesAway: DispatchRun = {
  title: '@WithLock on five masters: two killed, three killed, all back',
  plan: plan('with-lock', { nodes: 5, work: 200 }),
  situation: nodesGoAndReturn,
  expected: { ...fine, unavailable: 'some', recovery: 'in time' },
  tell: ({ pushes }, events) => {
    const down = events.slice(
      0,
      events.findIndex(({ kind }) => kind === 'node-started'),
    );
    const error = down.findLast((event) => event.kind === 'unavailable');
    const [message] = error?.kind === 'unavailable' ? error.message.split(';') : [''];
    return `dispatched without two nodes, stopped without three ("${message}"), dispatched again when they returned; ${pushes} tasks pushed once each`;
  },
};

/** Makes a run of a strategy. Each of these runs has the same load, so that the times of strategies can be compared. */
function comparison(title: string, strategy: StrategyName): DispatchRun {
  return {
    title,
    plan: plan(strategy, { work: 300, batch: 5 }),
    situation: muchToDispatch,
    expected: fine,
    tell: ({ pushes, took, overlaps }) =>
      `${pushes} tasks in ${seconds(took)}; ${overlaps === 0 ? 'one instance at a time' : 'several instances at once'}`,
  };
}

const severalAtOnce = { ...fine, tooMany: 'none', overlaps: 'some' } satisfies Expectation;

const permits = cured(
  counted,
  {
    title: '@WithLock, permits: 2, in the situation of 13',
    expected: severalAtOnce,
    tell: ({ pushes, overlaps }) =>
      `${times(overlaps, 'two at once', 'two at once, %s times')}, never three; ${pushes} tasks pushed once each`,
  },
  { strategy: 'permits', ...RENEWED },
);

const shared = cured(
  starved,
  {
    title: "@WithLock, mode: 'shared', in the situation of 14",
    expected: { ...severalAtOnce, overtakes: 'none' },
    tell: ({ waited = 0, pushes }) =>
      `the writer waited ${seconds(waited)}, only for the present readers; ${pushes} tasks pushed once each`,
  },
  { strategy: 'shared' },
);

function flashSale(title: string, way: SalePlan['way'], expected: Expectation): SaleRun {
  const sale: SalePlan = { way, shops: 3, buyersPerShop: 30, stock: 50 };
  return {
    title: `flash sale of ${sale.stock}: ${title}`,
    sale,
    expected,
    tell: ({ pushes, took }) =>
      `${sale.shops * sale.buyersPerShop} buyers got ${pushes} of ${sale.stock} in ${took} ms`,
  };
}

export const SCENARIOS: readonly Scenario[] = [
  { number: 1, title: 'No lock', parts: [noLock] },
  { number: 2, title: 'SETNX without a ttl', parts: [setnx] },
  { number: 3, title: 'SETNX, then EXPIRE', parts: [setnxThenExpire] },
  { number: 4, title: 'Released by plain DEL', parts: [plainDelete] },
  { number: 5, title: 'Owner id without renewal', parts: [ownerId] },
  { number: 6, title: 'Elapsed time not checked', parts: [lateReply] },
  { number: 7, title: 'One master and a replica', parts: [replica] },
  {
    number: 8,
    title: 'A paused holder',
    parts: [
      paused,
      {
        ...paused,
        title: 'the same, fencing token checked by PostgreSQL',
        plan: plan('owner-id-with-token', PAUSE),
        expected: refusedByToken,
        tell: tellFine,
      },
    ],
  },
  { number: 9, title: 'A node that forgets', parts: [wiped, guarded] },
  {
    number: 10,
    title: '@WithLock in each of these situations',
    parts: [
      cured(noLock, { title: '@WithLock: three timers' }),
      cured(setnx, { title: '@WithLock: holder killed', expected: { ...fine, recovery: 'in time' } }),
      cured(setnxThenExpire, {
        title: '@WithLock: killed before it knows that it has the lock',
        expected: { ...fine, recovery: 'in time' },
      }),
      cured(plainDelete, { title: '@WithLock: job longer than the ttl' }),
      cured(ownerId, { title: '@WithLock: job three times as long as the ttl' }),
      cured(lateReply, { title: '@WithLock: the answer comes after the ttl' }),
      cured(replica, { title: '@WithLock: fail-over to a replica that lacks the key' }, { ttl: 3_000 }),
      cured(paused, { title: '@WithLock: holder paused past its ttl', expected: refusedByToken }),
      cured(wiped, { title: '@WithLock: a granting node wiped' }),
    ],
  },
  { number: 11, title: 'Nodes die and return', parts: [nodesAway] },
  {
    number: 12,
    title: 'When a lock is the wrong tool',
    parts: [
      comparison('dispatcher: @WithLock', 'with-lock'),
      comparison('dispatcher: SELECT ... FOR UPDATE SKIP LOCKED', 'skip-locked'),
      comparison('dispatcher: no lock, unique constraint on (task, dispatch)', 'unique-constraint'),
      flashSale('read, then write', 'unguarded', { duplicates: 'some' }),
      flashSale('the same under a lock', 'lock', fine),
      flashSale('one Lua script', 'script', fine),
    ],
  },
  { number: 13, title: 'Two at a time, counted on each node', parts: [counted] },
  { number: 14, title: 'Readers that starve a writer', parts: [starved] },
  { number: 15, title: "permits and mode: 'shared' in these situations", parts: [permits, shared] },
  {
    number: 16,
    title: 'The job that does not breathe',
    parts: [
      breathless,
      {
        ...breathless,
        title: "the same with renew: 'thread'",
        plan: { ...breathless.plan, strategy: 'with-thread' },
        expected: { ...fine, overlaps: 'none' },
        tell: tellFine,
      },
    ],
  },
];

/**
 * The playground is not one of the scenarios. It runs until a user stops it, and is meant for the controls of the page.
 */
export const PLAYGROUND: Scenario = {
  number: 0,
  title: 'Playground',
  parts: [
    {
      title: 'tasks keep coming; cause any fault on the page',
      plan: plan('none', { nodes: 5, work: 600 }),
      situation: playground,
      expected: {},
      tell: ({ pushes, duplicates }) => `${pushes} jobs, of which ${duplicates} are duplicates`,
    },
  ],
};

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

/** Returns `one` for the count 1, else `many` with the number in it. */
function times(count: number, one: string, many: string): string {
  return count === 1 ? one : many.replace('%s', String(count));
}
