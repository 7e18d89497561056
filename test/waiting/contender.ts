import { setTimeout as sleep } from 'node:timers/promises';
import { Leaders } from '../../lib/service/leader/leaders.js';
import { LockService } from '../../lib/service/lock.service.js';
import { openRuntime } from '../../lib/setup/open-runtime.js';
import type { LockOptions } from '../../lib/core/lock-options.js';
import type { RedlockModuleOptions } from '../../lib/setup/redlock.options.js';
import { SILENT_LOG } from '../support/silent-log.js';

// A process that acquires one lock again and again, in several loops. Messages from the test control it.

export interface ContenderOptions {
  readonly module: RedlockModuleOptions;
  readonly key: string;
  readonly loops: number;
  readonly lock: LockOptions;
  /** The time for which the process holds the lock, in milliseconds; 0 to release at once. */
  readonly hold: number;
}

/** `go`: lock until `stop`. `once`: every loop locks once. `quit`: release everything and end. */
export type Order = 'go' | 'once' | 'stop' | 'quit';

/** Times in milliseconds on the machine's monotonic clock, which all processes share. */
export interface Served {
  readonly loop: string;
  readonly asked: number;
  readonly granted: number;
  readonly released: number;
  readonly token: number;
}

export type Report =
  | { readonly event: 'ready' | 'quit' }
  | { readonly event: 'served'; readonly served: readonly Served[]; readonly errors: readonly string[] };

const options = JSON.parse(process.argv[2]!) as ContenderOptions;
const runtime = await openRuntime(options.module, { log: SILENT_LOG });
const locks = new LockService(runtime, new Leaders(runtime, undefined, runtime.log));
const served: Served[] = [];
const errors: string[] = [];
const state = { stopped: false };
let running: Promise<unknown> = Promise.resolve();

process.on('unhandledRejection', (error) => errors.push(`unhandled: ${String(error)}`));
process.on('warning', (warning) => errors.push(`warning: ${warning.message}`));

function machineTime(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

async function lockOnce(loop: string): Promise<void> {
  const asked = machineTime();
  try {
    const lock = await locks.acquire(options.key, options.lock);
    const granted = machineTime();
    if (options.hold > 0) await sleep(options.hold);
    const released = machineTime();
    await lock.release();
    served.push({ loop, asked, granted, released, token: lock.fencingToken });
  } catch (error) {
    errors.push(String(error));
  }
}

async function run(loop: string, times: number): Promise<void> {
  for (let time = 0; time < times && !state.stopped; time++) await lockOnce(loop);
}

function tell(report: Report): void {
  process.send?.(report);
}

async function obey(order: Order): Promise<void> {
  if (order === 'quit') {
    await runtime.drain();
    await runtime.close();
    tell({ event: 'quit' });
    process.disconnect();
    return;
  }
  state.stopped = order === 'stop';
  if (!state.stopped) {
    const loops = Array.from({ length: options.loops }, (_, index) => `${process.pid}/${index}`);
    running = Promise.all(loops.map((loop) => run(loop, order === 'once' ? 1 : Infinity)));
    if (order === 'go') return;
  }
  await running;
  tell({ event: 'served', served, errors });
}

process.on('message', (order: Order) => void obey(order));
// The process ends with the test that started it.
process.on('disconnect', () => setTimeout(() => process.exit(), 1_000).unref());
tell({ event: 'ready' });
