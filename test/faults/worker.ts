import { openSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockRuntime } from '../../lib/service/lock-runtime.js';
import type { LockHandle } from '../../lib/core/lock-handle.js';
import type { LockMode } from '../../lib/core/lock-mode.js';
import type { RedlockModuleOptions } from '../../lib/setup/redlock.options.js';
import { SILENT_LOG } from '../support/silent-log.js';
import type { Access } from './access.js';
import { type FaultEventBody, machineTime } from './events.js';
import { startHeartbeat } from './heartbeat.js';
import { type Library, openPassedIn, type PassedIn, type Target } from './passed-in.js';
import { RegisterClient } from './register-client.js';

// One client of a fault test, which runs as its own process. The client acquires a lock, reads and writes the register,
// releases, and starts again; it logs each event. Commands arrive as lines on its standard input.

/** A kind of lock that a client asks for; exclusive by default. */
export interface Want {
  /** Sorted, like the keys of the handle. */
  readonly keys: readonly string[];
  readonly mode?: 'exclusive' | 'shared';
  readonly permits?: number;
}

export interface WorkerOptions {
  readonly client: string;
  /** The file with the client's events. */
  readonly log: string;
  readonly registerPort: number;
  /** Each attempt asks for one of these locks, chosen at random. */
  readonly wants: readonly Want[];
  readonly module: RedlockModuleOptions & { readonly nodeTimeout: number };
  /**
   * The Redis library of the clients that this process passes in as nodes, one for each of the `targets`.
   * `module.nodes` is then ignored.
   */
  readonly passesIn: Library | undefined;
  readonly targets: readonly Target[];
  readonly ttl: number;
  readonly renew: boolean;
  readonly retry: {
    readonly timeout: number;
    readonly delay: number;
    readonly jitter: number;
    /**
     * Number of attempts. With a limited number, a waiter retries after every `delay`; without a limit, a waiter
     * retries after a message or a long sleep.
     */
    readonly attempts?: number;
  };
  /** Longest hold, in milliseconds. The duration of each hold is random, and at least `leastHold`. */
  readonly hold: number;
  readonly leastHold: number;
  /** Pause between a release and the next acquisition, in milliseconds. */
  readonly rest: number;
  /** Number of callers that acquire side by side. */
  readonly loops: number;
}

/**
 * `go` starts the callers. `stop` ends them after their present attempt; the client then logs `idle`, at once if it has
 * stopped before. `quit` shuts down, also during a hold or an attempt, and ends the process. `block` blocks the thread
 * during the next hold, and `step` shifts the wall clock, both by a number of milliseconds.
 */
export type WorkerCommand = 'go' | 'stop' | 'quit' | `block ${number}` | `step ${number}`;

const options = JSON.parse(process.argv[2]!) as WorkerOptions;
const file = openSync(options.log, 'a');

/** Logs an event. The write is synchronous, so that a kill loses no event. */
function note(body: FaultEventBody, at = machineTime()): void {
  writeSync(file, `${JSON.stringify({ at, client: options.client, ...body })}\n`);
}

process.on('unhandledRejection', (error) => note({ event: 'unhandled', message: String(error) }));
process.on('uncaughtException', (error) => note({ event: 'unhandled', message: String(error.stack) }));

// This must run before any module reads the clock. A step changes only the result of Date.now().
const realNow = Date.now.bind(Date);
let clockShift = 0;
Date.now = () => realNow() + clockShift;

const heartbeat = startHeartbeat((duration, at) => note({ event: 'stall', duration }, at));

// Import these modules here, not at the top: they read the clock while they load.
const { openRuntime } = await import('../../lib/setup/open-runtime.js');
const { Leaders } = await import('../../lib/service/leader/leaders.js');
const { LockService } = await import('../../lib/service/lock.service.js');

const { passesIn } = options;
/** Clients that this process, as the application, has opened and must close. */
const passedIn: readonly PassedIn[] = passesIn
  ? await Promise.all(options.targets.map((target) => openPassedIn(passesIn, target)))
  : [];
const register = await RegisterClient.open(options.registerPort);
const runtime: LockRuntime = await openRuntime(
  {
    ...options.module,
    ...(passesIn && { nodes: passedIn.map(({ client }) => client) as RedlockModuleOptions['nodes'] }),
  },
  { log: SILENT_LOG },
);
const locks = new LockService(runtime, new Leaders(runtime, undefined, runtime.log));
/** The attempts that hold the lock. */
const relying = new Set<number>();
let attempts = 0;
const orders = { stop: false, blockFor: 0 };
let running: Promise<unknown> | undefined;

async function loop(): Promise<void> {
  while (!orders.stop) {
    const attempt = ++attempts;
    const lock = await acquire(attempt);
    if (!lock) continue;
    await hold(attempt, lock);
    stopRelying(attempt);
    await lock.release();
    note({ event: 'released', attempt });
    if (options.rest > 0 && !orders.stop) await sleep(options.rest);
  }
}

/** Logs the end of a hold. From this moment on, another client may hold the lock. */
function stopRelying(attempt: number): void {
  if (relying.delete(attempt)) note({ event: 'release', attempt, budget: options.module.nodeTimeout });
}

async function acquire(attempt: number): Promise<LockHandle | undefined> {
  const { wants, ttl, renew, retry } = options;
  const { keys, ...kind } = wants[Math.floor(Math.random() * wants.length)]!;
  const { permits } = kind;
  const mode: LockMode = kind.mode ?? (permits === undefined ? 'exclusive' : 'permits');
  const told = permits === undefined ? { mode } : { mode, permits };
  note({ event: 'invoke', attempt, keys, ...told, budget: retry.timeout });
  try {
    const lock = await locks.acquire(keys, { ...kind, ttl, renew, retry });
    const at = machineTime();
    const validUntil = at + lock.remaining();
    const { slots } = lock;
    note({ event: 'return', attempt, token: lock.fencingToken, validUntil, ...(slots && { slots }) }, at);
    relying.add(attempt);
    return lock;
  } catch (error) {
    const { code = 'UNEXPECTED', message } = error as { code?: string; message: string };
    note({ event: 'refuse', attempt, code, message });
    // A refusal can come at once. Without a pause, this loop would leave no time for other work of the process.
    await sleep(retry.delay);
    return undefined;
  }
}

async function hold(attempt: number, lock: LockHandle): Promise<void> {
  const { leastHold, hold: longest } = options;
  const lost = (): void => note({ event: 'lost', attempt });
  lock.signal.addEventListener('abort', lost);
  if (lock.signal.aborted) lost();
  const watch = watchValidity(attempt, lock);
  try {
    const work = await Promise.all(lock.keys.map((key, index) => begin(attempt, lock, key, index)));
    const until = machineTime() + leastHold + Math.random() * (longest - leastHold);
    if (orders.blockFor > 0) block();
    while (machineTime() < until && !orders.stop) await sleep(Math.min(20, until - machineTime()));
    // The client does not check that the lock is still held: the register decides by the token.
    for (const finish of work) await finish();
  } finally {
    clearInterval(watch);
    lock.signal.removeEventListener('abort', lost);
  }
}

/**
 * Reads the register. Returns a function that ends the hold: a reader reads again, another holder writes the next
 * value.
 */
async function begin(
  attempt: number,
  lock: LockHandle,
  key: string,
  index: number,
): Promise<() => Promise<void>> {
  const { mode, slots, fencingToken: token } = lock;
  const access: Access = slots ? { mode, slot: slots[index], token } : { mode, token };
  const value = await register.read(key, access);
  if (mode !== 'shared') {
    return async () => {
      const accepted = value !== undefined && (await register.write(key, access, value + 1));
      note({ event: 'write', attempt, token, accepted });
    };
  }
  note({ event: 'read', attempt, key, token, value });
  return async () => note({ event: 'read', attempt, key, token, value: await register.read(key, access) });
}

/** Logs each renewal, which moves the end of the validity. */
function watchValidity(attempt: number, lock: LockHandle): NodeJS.Timeout {
  let latest = machineTime() + lock.remaining();
  return setInterval(() => {
    const validUntil = machineTime() + lock.remaining();
    if (lock.remaining() === 0 || validUntil < latest + 5) return;
    latest = validUntil;
    note({ event: 'renew', attempt, validUntil });
  }, 5).unref();
}

function block(): void {
  const until = machineTime() + orders.blockFor;
  orders.blockFor = 0;
  while (machineTime() < until);
}

async function obey(command: string): Promise<void> {
  const [verb, amount] = command.split(' ');
  if (verb === 'go') running ??= Promise.all(Array.from({ length: options.loops }, () => loop()));
  else if (verb === 'block') orders.blockFor = Number(amount);
  else if (verb === 'step') clockShift += Number(amount);
  else if (verb === 'stop') {
    orders.stop = true;
    await running;
    // A stall that has just ended must be in the log before this event.
    heartbeat.check();
    note({ event: 'idle' });
  } else if (verb === 'quit') {
    orders.stop = true;
    await runtime.drain();
    for (const attempt of relying) stopRelying(attempt);
    await runtime.close();
    note({ event: 'closed' });
    await running;
    for (const client of passedIn) await client.close();
    register.close();
    commands.close();
    process.stdin.destroy();
  }
}

const commands = createInterface({ input: process.stdin });
commands.on('line', (line) => void obey(line));
// The process ends with the test that started it.
process.stdin.on('end', () => process.kill(process.pid, 'SIGKILL'));
note({ event: 'ready' });
