import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { Counter, Gauge, Histogram, register, type Registry } from 'prom-client';
import { LEADER_CHANNEL, type LeaderEvent } from '../telemetry/leader-event.js';
import { LOCK_SKIPPED_CHANNEL, type LockSkippedEvent } from '../telemetry/lock-skipped.js';
import {
  LOCK_ACQUIRE_CHANNEL,
  LOCK_HOLD_CHANNEL,
  type LockAcquireEvent,
  type LockHoldEvent,
} from '../telemetry/lock-telemetry.events.js';
import { badNumber, badOption, checkOptionNames } from '../core/checks.js';
import { RedlockError } from '../core/errors.js';
import {
  NODE_ERROR_CHANNEL,
  type NodeErrorEvent,
  THREAD_CHANNEL,
  type ThreadEvent,
} from '../core/lock-events.js';
import type { LockMode } from '../core/lock-mode.js';

/** Options of {@link collectLockMetrics}. */
export interface LockMetricsOptions {
  /**
   * Registry of the metrics.
   * @defaultValue the default registry of prom-client
   */
  readonly registry?: Registry;

  /**
   * Largest number of distinct labels of locks, at least 1. Locks with further labels are counted as `'other'`.
   * @defaultValue 200
   */
  readonly maxLabels?: number;
}

const NAMES = [
  'redlock_wait_seconds',
  'redlock_hold_seconds',
  'redlock_held',
  'redlock_permits_taken',
  'redlock_acquired_total',
  'redlock_busy_total',
  'redlock_unavailable_total',
  'redlock_skipped_total',
  'redlock_lost_total',
  'redlock_node_errors_total',
  'redlock_thread_failures_total',
  'redlock_is_leader',
];

/** Buckets for waits in seconds: from the duration of a hand-over to the longest usual wait. */
const WAIT_BUCKETS = [0.001, 0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30];

/** Buckets for the times that locks are held, in seconds: from one statement to a batch that runs for an hour. */
const HOLD_BUCKETS = [0.005, 0.02, 0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 3_600];

/**
 * Makes metrics for prom-client about the locks of all modules in this process.
 *
 * The metrics have the labels `lock` (the label of a lock, not its key), `module` (the name of the `RedlockModule`, or
 * `'default'` without a name) and `mode` (`'exclusive'`, `'shared'` or `'permits'`). `redlock_permits_taken` counts
 * only locks with `permits`, so it has no `mode`.
 *
 * @returns a function that ends the collection and removes the metrics from the registry
 * @throws TypeError or RangeError naming the wrong option; prom-client's Error when the registry already has these
 * metrics
 * @example
 * ```ts
 * import { collectLockMetrics } from 'nestjs-redlock/metrics';
 *
 * const stop = collectLockMetrics();
 * ```
 */
export function collectLockMetrics(options: LockMetricsOptions = {}): () => void {
  checkOptionNames('collectLockMetrics', options, ['registry', 'maxLabels']);
  const { registry = register, maxLabels = 200 } = options;
  if (!Number.isInteger(maxLabels) || maxLabels < 1) {
    throw badNumber('maxLabels', 'a whole number, at least 1', maxLabels);
  }
  // Check the method and not the class, because the application may have another copy of prom-client.
  if (typeof registry?.registerMetric !== 'function')
    throw badOption('registry', 'a Registry of prom-client', registry);
  const registers = [registry];
  const ofPermits = ['lock', 'module'] as const;
  const of = [...ofPermits, 'mode'] as const;
  const waits = new Histogram({
    name: 'redlock_wait_seconds',
    help: 'Time in seconds to acquire a lock, by its outcome: acquired, held by somebody else, unavailable or aborted',
    labelNames: [...of, 'outcome'],
    buckets: WAIT_BUCKETS,
    registers,
  });
  const holdTimes = new Histogram({
    name: 'redlock_hold_seconds',
    help: 'Time in seconds that locks were held, until they were released or lost',
    labelNames: of,
    buckets: HOLD_BUCKETS,
    registers,
  });
  const held = new Gauge({
    name: 'redlock_held',
    help: 'Number of locks that this process holds',
    labelNames: of,
    registers,
  });
  const taken = new Gauge({
    name: 'redlock_permits_taken',
    help: 'Number of permits that this process holds; a lock of several keys holds a permit of each key',
    labelNames: ofPermits,
    registers,
  });
  const counter = <Label extends string>(
    name: string,
    help: string,
    labelNames: readonly Label[],
  ): Counter<Label> => new Counter({ name, help, labelNames, registers });
  const acquired = counter('redlock_acquired_total', 'Locks that were acquired', of);
  const busy = counter(
    'redlock_busy_total',
    'Acquisitions that failed because somebody else held the lock',
    of,
  );
  const unavailable = counter(
    'redlock_unavailable_total',
    'Acquisitions that failed because no quorum answered',
    of,
  );
  const skipped = counter('redlock_skipped_total', 'Calls that were skipped, by the reason', [
    ...of,
    'reason',
  ]);
  const lost = counter('redlock_lost_total', 'Locks that were lost while they were held', of);
  const isLeader = new Gauge({
    name: 'redlock_is_leader',
    help: '1 if this process leads, otherwise 0, for each name that it campaigns for',
    labelNames: ['leader', 'module'],
    registers,
  });
  const nodeErrors = counter('redlock_node_errors_total', 'Requests without a usable answer from the node', [
    'node',
  ]);
  const threadFailures = counter(
    'redlock_thread_failures_total',
    'Times that the thread for renewals did not renew, by the reason',
    ['module', 'reason'],
  );

  const labels = new Set<string>();
  const begun = new Set<string>();
  const subjectOf = ({ label, instance, mode }: Subjected): Subject => {
    if (labels.size < maxLabels) labels.add(label);
    const subject = { lock: labels.has(label) ? label : 'other', module: instance ?? 'default', mode };
    const name = JSON.stringify(subject);
    if (!begun.has(name)) {
      begun.add(name);
      // Set each counter to 0 now: Prometheus sees no increase when a counter appears together with its first event.
      for (const each of [acquired, busy, unavailable, lost]) each.inc(subject, 0);
    }
    return subject;
  };
  const take = (event: LockHoldEvent, sign: 1 | -1): void => {
    if (event.mode !== 'permits') return;
    const { mode: _mode, ...subject } = subjectOf(event);
    taken.inc(subject, sign * event.keys.length);
  };
  const refusals = { held: busy, unavailable, aborted: undefined };
  /**
   * The held locks that are counted. A lock that was acquired before the call of `collectLockMetrics` is not counted.
   */
  const counted = new WeakSet<LockHoldEvent>();

  const handlers: [channel: string, handler: (message: never) => void][] = [
    [
      `tracing:${LOCK_ACQUIRE_CHANNEL}:asyncEnd`,
      (event: LockAcquireEvent) => {
        const subject = subjectOf(event);
        const refusal = event.error === undefined ? undefined : refusalOf(event.error);
        waits.observe({ ...subject, outcome: refusal ?? 'acquired' }, (event.waited ?? 0) / 1_000);
        if (refusal) refusals[refusal]?.inc(subject);
        else acquired.inc(subject);
      },
    ],
    [
      `tracing:${LOCK_HOLD_CHANNEL}:start`,
      (event: LockHoldEvent) => {
        counted.add(event);
        held.inc(subjectOf(event));
        take(event, 1);
      },
    ],
    [
      `tracing:${LOCK_HOLD_CHANNEL}:asyncEnd`,
      (event: LockHoldEvent) => {
        if (!counted.has(event)) return;
        const subject = subjectOf(event);
        held.dec(subject);
        take(event, -1);
        holdTimes.observe(subject, (event.heldFor ?? 0) / 1_000);
        if (event.error) lost.inc(subject);
      },
    ],
    [
      LOCK_SKIPPED_CHANNEL,
      (event: LockSkippedEvent) => skipped.inc({ ...subjectOf(event), reason: event.reason }),
    ],
    [
      LEADER_CHANNEL,
      ({ leader, instance = 'default', isLeader: leads }: LeaderEvent) =>
        isLeader.set({ leader, module: instance }, leads ? 1 : 0),
    ],
    [NODE_ERROR_CHANNEL, ({ node }: NodeErrorEvent) => nodeErrors.inc({ node })],
    [
      THREAD_CHANNEL,
      ({ instance = 'default', reason }: ThreadEvent) => threadFailures.inc({ module: instance, reason }),
    ],
  ];
  for (const [channel, handler] of handlers) subscribe(channel, handler as (message: unknown) => void);
  return () => {
    for (const [channel, handler] of handlers) unsubscribe(channel, handler as (message: unknown) => void);
    for (const name of NAMES) registry.removeSingleMetric(name);
  };
}

interface Subject {
  readonly lock: string;
  readonly module: string;
  readonly mode: LockMode;
}

/** Fields of the events from which labels are made. */
interface Subjected {
  readonly label: string;
  readonly instance?: string;
  readonly mode: LockMode;
}

function refusalOf(error: unknown): 'held' | 'unavailable' | 'aborted' {
  if (!(error instanceof RedlockError)) return 'aborted';
  return error.code === 'LOCK_HELD' ? 'held' : 'unavailable';
}
