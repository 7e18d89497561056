import { Injectable } from '@nestjs/common';
import { ModulesContainer } from '@nestjs/core';
import { Bench, type TaskResult } from 'tinybench';
import { LockInterceptor, LockService, WithLock } from '../../lib/index.js';
import { Leaders } from '../../lib/service/leader/leaders.js';
import { adopt } from '../../lib/decorator/interceptor-injection.js';
import { LockTelemetry } from '../../lib/telemetry/lock-telemetry.js';
import { LateParts } from '../../lib/decorator/late-parts.js';
import { LockRuntime } from '../../lib/service/lock-runtime.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { LockInspector } from '../../lib/redlock/inspect/lock-inspector.js';
import type { AcquireReply, AcquireRequest, ReleaseRequest, Tell } from '../../lib/core/ports.js';
import { Redlock } from '../../lib/redlock/redlock.js';
import { RestartGuard } from '../../lib/redlock/restart-guard.js';
import { Ticks } from '../../lib/decorator/schedule/ticks.js';
import { Lease } from '../../lib/core/lease.js';
import { STDERR_LOG } from '../../lib/core/log.js';
import { alone } from '../measure/rounds.js';
import { type Group, times } from './group.js';

const TTL = 10_000;
const nothing = (): Promise<void> => Promise.resolve();
const ignore = (): void => undefined;

const GRANTED: AcquireReply = { granted: true, token: 1 };

/** A node that grants each request immediately, so that only the work of this package remains. */
class InstantNode extends MemoryStore {
  override acquire(requests: readonly AcquireRequest[], _ordered: boolean, tell: Tell<AcquireReply>): void {
    for (let index = 0; index < requests.length; index++) tell(index, GRANTED);
  }

  override release(requests: readonly ReleaseRequest[], tell: Tell<undefined>): void {
    for (let index = 0; index < requests.length; index++) tell(index, undefined);
  }
}

@Injectable()
class Tasks {
  @WithLock('overhead', { ttl: TTL, retry: false })
  async run(task: () => Promise<void>): Promise<void> {
    await task();
  }
}

/**
 * Measures the work of this package alone, with a node that answers immediately. Other libraries cannot be measured
 * this way.
 */
export const overhead: Group = {
  name: 'overhead',
  about: 'what withLock adds to the calls of a node that answers at once, and @WithLock to withLock',
  async run(plan) {
    const node = new InstantNode();
    const settings = { owner: 'bench', driftFactor: 0.01, nodeTimeout: undefined };
    const redlock = new Redlock([node], { ...settings, guard: new RestartGuard(0) });
    const runtime = new LockRuntime(
      redlock,
      new LockInspector([node], settings, redlock.held),
      new LockTelemetry(undefined, undefined),
      {},
      1_000,
      nothing,
      STDERR_LOG,
    );
    const leaders = new Leaders(runtime, undefined, STDERR_LOG);
    const locks = new LockService(runtime, leaders);
    const tasks = new Tasks();
    const parts = new LateParts();
    parts.arrive({ runtime, leaders });
    adopt(tasks, undefined, new LockInterceptor(parts, new Ticks(new ModulesContainer())));

    const lease = new Lease(['overhead'], 'bench', TTL);
    const requests: AcquireRequest[] = [
      { lease, since: 0, limit: TTL, guard: 0, proposal: 0, position: undefined },
    ];
    const releases: ReleaseRequest[] = [{ lease, pause: 0 }];
    const work: Readonly<Record<string, () => Promise<unknown>>> = {
      'the calls of the node': async () => {
        node.acquire(requests, false, ignore);
        await nothing();
        node.release(releases, ignore);
      },
      'acquire and release': async () => {
        const lock = await locks.acquire('overhead', { ttl: TTL, retry: false });
        await nothing();
        await lock.release();
      },
      withLock: () => locks.withLock('overhead', { ttl: TTL, retry: false }, nothing),
      '@WithLock': () => tasks.run(nothing),
    };

    const rounds: Record<string, number>[] = [];
    for (let round = 0; round < times(7, plan); round++) {
      const bench = new Bench({ time: 500 * plan.effort, warmupTime: 100 * plan.effort });
      for (const [name, run] of Object.entries(work)) bench.add(name, run);
      await bench.run();
      rounds.push(Object.fromEntries(bench.tasks.map(({ name, result }) => [name, microseconds(result)])));
    }
    await runtime.close();
    const names = Object.keys(work);
    const rows = names.map((name, index) => {
      const before = names[name === 'withLock' ? 0 : index - 1];
      const took = rounds.map((round) => round[name] ?? NaN);
      const added = rounds.map((round) => (round[name] ?? NaN) - (before ? (round[before] ?? NaN) : NaN));
      return [name, { took: alone(took), added: alone(added) }] as const;
    });
    return {
      tables: [
        {
          title: 'Overhead with an instant node, us',
          rows: new Map(rows),
          columns: [
            { figure: 'took', title: 'p50', digits: 2 },
            { figure: 'added', title: 'added', digits: 2 },
          ],
          notes: [
            'Added: time of acquire and release, and of withLock, beyond the calls of the node; of @WithLock beyond withLock.',
          ],
        },
      ],
    };
  },
};

function microseconds(result: TaskResult): number {
  if (!('latency' in result)) throw new Error(`the measurement ended as ${result.state}`, { cause: result });
  return 1_000 * result.latency.p50;
}
