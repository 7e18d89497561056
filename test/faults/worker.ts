import { openSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockRuntime } from '../../lib/service/lock-runtime.js';
import type { LockHandle } from '../../lib/core/lock-handle.js';
import type { LockMode } from '../../lib/core/lock-mode.js';
import type { RedlockModuleOptions } from '../../lib/module/redlock.options.js';
import type { Access } from './access.js';
import { type FaultEventBody, machineTime } from './events.js';
import { RegisterClient } from './register-client.js';

// One client of a fault test, in a process of its own: locks, reads and writes the register, releases, over and over,
// and writes down what happens. It is told what to do by lines on its standard input.

/** A lock that a client asks for: of one of the modes, or of so many permits; exclusive by default. */
export interface Want {
  /** Sorted, as the handle has them. */
  readonly keys: readonly string[];
  readonly mode?: 'exclusive' | 'shared';
  readonly permits?: number;
}

export interface WorkerOptions {
  readonly client: string;
  /** The file that it writes its events to. */
  readonly log: string;
  readonly registerPort: number;
  /** One of them, at random, each time. */
  readonly wants: readonly Want[];
  readonly module: RedlockModuleOptions & { readonly nodeTimeout: number };
  /** Passes clients of node-redis in, that lead to the nodes, which are URLs then. */
  readonly passesIn: boolean;
  readonly ttl: number;
  readonly renew: boolean;
  readonly retry: {
    readonly timeout: number;
    readonly delay: number;
    readonly jitter: number;
    /** With a limit, a waiter asks after every delay; without, when it is told or has slept long. */
    readonly attempts?: number;
  };
  /** Longest time that it holds the lock, in milliseconds; how long is random, from `leastHold` on. */
  readonly hold: number;
  readonly leastHold: number;
  /** How long it leaves the lock to others after a release, in milliseconds. */
  readonly rest: number;
  /** How many acquire side by side. */
  readonly loops: number;
}

/**
 * `go` begins to lock; `stop` ends that, and answers with the event `idle`; `quit` shuts down, also while it holds or
 * acquires, and ends the process. `block` blocks the thread for so many milliseconds; `step` shifts its wall clock.
 */
export type WorkerCommand = 'go' | 'stop' | 'quit' | `block ${number}` | `step ${number}`;

/** A timer that comes so much too late, in milliseconds, shows that the process did not run. */
const STALL_MS = 20;
const HEARTBEAT_MS = 10;

const options = JSON.parse(process.argv[2]!) as WorkerOptions;
const file = openSync(options.log, 'a');

/** Written at once, so that it is there when the process is killed. */
function note(body: FaultEventBody, at = machineTime()): void {
  writeSync(file, `${JSON.stringify({ at, client: options.client, ...body })}\n`);
}

process.on('unhandledRejection', (error) => note({ event: 'unhandled', message: String(error) }));
process.on('uncaughtException', (error) => note({ event: 'unhandled', message: String(error.stack) }));

// Before anything looks at the clock. A step of the wall clock shows in Date.now() only.
const realNow = Date.now.bind(Date);
let clockShift = 0;
Date.now = () => realNow() + clockShift;

let beat = machineTime();
setInterval(() => {
  const at = machineTime();
  const late = at - beat - HEARTBEAT_MS;
  if (late > STALL_MS) note({ event: 'stall', duration: late }, at);
  beat = at;
}, HEARTBEAT_MS).unref();

// Import these modules here, not at the top: they read the clock while they load.
const { Logger } = await import('@nestjs/common');
Logger.overrideLogger(false);
const { openRuntime } = await import('../../lib/module/open-runtime.js');
const { Leaders } = await import('../../lib/service/leader/leaders.js');
const { LockService } = await import('../../lib/service/lock.service.js');

/** The application closes them. */
const passedIn: { destroy(): void }[] = [];
const register = await RegisterClient.open(options.registerPort);
const locker: LockRuntime = await openRuntime({ ...options.module, nodes: await nodes() });
const locks = new LockService(locker, new Leaders(locker, undefined));
/** The attempts that hold the lock. */
const relying = new Set<number>();
let attempts = 0;
const orders = { stop: false, blockFor: 0 };
let running: Promise<unknown> | undefined;

async function nodes(): Promise<RedlockModuleOptions['nodes']> {
  const given = options.module.nodes;
  if (!options.passesIn) return given;
  const { createClient } = await import('redis');
  return Promise.all(
    (given as readonly string[]).map(async (url) => {
      const client = createClient({ url });
      client.on('error', () => undefined);
      await client.connect();
      passedIn.push(client);
      return client;
    }),
  );
}

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

/** From here on the lock may be given back at any time. */
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
    // After a refusal that took no time, one turn is not enough to let anything else happen.
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
    // It does not ask whether it still holds the lock: the register decides by the token.
    for (const finish of work) await finish();
  } finally {
    clearInterval(watch);
    lock.signal.removeEventListener('abort', lost);
  }
}

/** Reads the value that a key protects. The returned function reads it again, or writes the next value. */
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

/** Notes when a renewal moves the end of the validity. */
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
    note({ event: 'idle' });
  } else if (verb === 'quit') {
    orders.stop = true;
    await locker.drain();
    for (const attempt of relying) stopRelying(attempt);
    await locker.close();
    note({ event: 'closed' });
    await running;
    for (const client of passedIn) client.destroy();
    register.close();
    commands.close();
    process.stdin.destroy();
  }
}

const commands = createInterface({ input: process.stdin });
commands.on('line', (line) => void obey(line));
// It ends with the test that started it.
process.stdin.on('end', () => process.kill(process.pid, 'SIGKILL'));
note({ event: 'ready' });
