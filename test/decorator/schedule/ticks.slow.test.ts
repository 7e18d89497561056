import { beforeAll, describe, expect, test } from '@jest/globals';
import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { buildClockShim } from '../../faults/clock-shim.js';
import { bundled } from '../../support/bundle.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { startRedisNodes } from '../../support/redis-server.js';
import { until } from '../../support/until.js';

// Real processes use @nestjs/schedule on real servers. Each process has its own wall clock.

interface Run {
  readonly instance: number;
  readonly job: string;
  /** The second that the run is for, by the clock of its instance. */
  readonly tick: number;
  /** Time of the call for the run. This and the next two times are milliseconds on a clock that all processes share. */
  readonly asked: number;
  readonly start: number;
  readonly end: number;
}

/** One firing of a schedule. It calls the job, and the call runs or is skipped. */
interface Firing {
  readonly fired: string;
  readonly tick: number;
}

/** The most milliseconds between the call for a run and its start on a machine that does not stall. */
const LATE_MS = 300;

class Instances {
  readonly runs: Run[] = [];
  readonly firings: Firing[] = [];
  readonly errors: string[] = [];
  readonly #children: ChildProcess[] = [];
  /** Instances that have ended, after all their output was read. */
  readonly #ended = new Set<ChildProcess>();

  /** @param clocks - the lead of each instance's clock, in milliseconds */
  constructor(private readonly clocks: readonly number[]) {}

  /** @param ttl - the ttl of all locks, in milliseconds */
  async start(file: string, nodes: number, ttl: number): Promise<void> {
    const servers = await startRedisNodes(nodes);
    const urls = servers.map(({ url }) => url).join();
    let ready = 0;
    for (const [instance, ahead] of this.clocks.entries()) {
      const shim = buildClockShim();
      if (typeof shim === 'string')
        throw new Error(`needs a clock of its own for each instance, but ${shim}`);
      shim.shift(ahead);
      const child = spawn(process.execPath, [file], {
        env: {
          ...process.env,
          NODE_OPTIONS: '',
          NO_COLOR: '1',
          REDIS_URLS: urls,
          TTL: String(ttl),
          ...shim.env,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      cleanUpAfterTests(async () => void child.kill('SIGKILL'));
      child.stderr.setEncoding('utf8').on('data', (text: string) => this.errors.push(text));
      createInterface(child.stdout).on('line', (line) => {
        if (line === 'ready') return void ready++;
        const said = JSON.parse(line) as Firing | Omit<Run, 'instance'>;
        if ('fired' in said) this.firings.push(said);
        else this.runs.push({ instance, ...said });
      });
      child.once('close', () => this.#ended.add(child));
      this.#children.push(child);
    }
    await until(() => ready === this.clocks.length);
  }

  signal(instance: number, signal: NodeJS.Signals): void {
    this.#children[instance]?.kill(signal);
  }

  hasEnded(instance: number): boolean {
    return this.#ended.has(this.#children[instance]!);
  }

  async stop(): Promise<void> {
    for (const child of this.#children) child.kill('SIGTERM');
    await until(() => this.#ended.size === this.#children.length);
  }

  /** The next second that has not begun on the clock of any instance. */
  nextTick(): number {
    return Math.ceil((Date.now() + Math.max(...this.clocks)) / 1_000) + 1;
  }

  /** Resolves when this second is over on the slowest clock. */
  async untilOver(tick: number): Promise<void> {
    await delay(Math.max(0, (tick + 1) * 1_000 - Math.min(...this.clocks) - Date.now()) + 200);
  }

  of(job: string): Run[] {
    return this.runs.filter((run) => run.job === job).toSorted((a, b) => a.start - b.start);
  }

  /** True if the machine was slow: a run of the job began late, or a call of the job failed for lack of answers. */
  wasLate(job: string): boolean {
    const hasFailed = this.errors.join('').includes(`Could not lock "${job}"`);
    return hasFailed || this.of(job).some(({ asked, start }) => start - asked > LATE_MS);
  }

  /** Number of runs of the job for each of these ticks. */
  counts(job: string, first: number, count: number): number[] {
    return Array.from(
      { length: count },
      (_, index) => this.of(job).filter(({ tick }) => tick === first + index).length,
    );
  }
}

/** The shortest time from the call for a run to the start of the next run. */
function leastApart(runs: readonly Run[]): number {
  return Math.min(...runs.slice(1).map(({ start }, index) => start - runs[index]!.asked));
}

function overlaps(runs: readonly Run[]): number {
  return runs.filter(({ start }, index) => index > 0 && start < runs[index - 1]!.end).length;
}

let file: string;
beforeAll(async () => {
  file = await bundled('test/fixtures/tick-app.ts');
});

describe('three instances with clocks at 0, +400 ms and -400 ms', () => {
  const instances = new Instances([0, 400, -400]);
  const TICKS = 10;
  let first: number;

  beforeAll(async () => {
    await instances.start(file, 1, 10_000);
    first = instances.nextTick();
    // The instances run for one more tick than the tests count, because a call that the shutdown refuses does not run.
    await instances.untilOver(first + TICKS);
    await instances.stop();
  });

  test('with `oncePerTick`, a job of 10 ms runs once for each tick that fires on any instance', () => {
    const fired = Array.from({ length: TICKS }, (_, index) =>
      instances.firings.some((firing) => firing.fired === 'oncePerTick' && firing.tick === first + index),
    );
    const counts = instances.counts('oncePerTick', first, TICKS);
    // When the machine stalls for a second, the scheduler leaves a tick out, or the previous run still holds the lock.
    expect(counts.filter(Boolean).length).toBeGreaterThan(TICKS / 4);
    const isLate = instances.wasLate('oncePerTick');
    expect(counts).toEqual(isLate ? counts.map((count) => Math.min(count, 1)) : fired.map(Number));
  });

  test('without `oncePerTick`, a job of 10 ms runs more than once per tick (control)', () => {
    const total = instances.counts('skip', first, TICKS).reduce((sum, count) => sum + count, 0);
    expect(total).toBeGreaterThan(TICKS);
  });

  test('runs start at least `minHold` apart when `minHold` exceeds the clock difference', () => {
    const runs = instances.of('minHold');
    expect(runs.length).toBeGreaterThan(TICKS / 4);
    expect(leastApart(runs)).toBeGreaterThan(895);
  });

  test('a run that is longer than its interval does not overlap the next run on any instance', () => {
    const runs = instances.of('long');
    expect(runs.length).toBeGreaterThan(TICKS / 4);
    expect(overlaps(runs)).toBe(0);
    expect(Math.max(...instances.counts('long', first, TICKS))).toBe(1);
  });

  test('a method with `oncePerTick` and an @Interval of 1 s keeps running, about a second or more apart', () => {
    const runs = instances.of('interval');
    expect(runs.length).toBeGreaterThan(TICKS / 4);
    expect(leastApart(runs)).toBeGreaterThan(895);
  });

  test('no lock error is logged for skipped calls or at shutdown', () => {
    // The scheduler itself may say that it fired late.
    expect(instances.errors.join('')).not.toMatch(/LockHeldError|is held|has run|shutting down/);
  });
});

test('with three Redis nodes, a tick whose instance crashed runs again on another instance after the ttl', async () => {
  // The third instance asks for a tick when the lock of the crashed instance has lapsed, long before the next tick.
  const clocks = [0, 400, -3_000];
  const ttl = 2_000;
  for (let round = 0; ; round++) {
    const instances = new Instances(clocks);
    await instances.start(file, 3, ttl);
    instances.signal(1, 'SIGUSR2');
    // The instance whose clock is ahead acquires first, and holds the lock when the next instance asks.
    await until(() => instances.hasEnded(1));
    const { tick } = instances.of('crash').findLast(({ instance }) => instance === 1)!;
    await instances.untilOver(tick + 5);
    await instances.stop();
    // On a busy machine a call may miss the time limit of the nodes. It is not repeated, so such a round shows nothing.
    if (round < 3 && instances.errors.join('').includes('Could not lock "crash"')) continue;
    expect(instances.counts('crash', tick, 6)).toEqual([2, 0, 0, 0, 0, 1]);
    break;
  }
});
