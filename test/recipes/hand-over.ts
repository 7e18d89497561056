import type { LockService } from 'nestjs-redlock';

/** The message of the queue. */
export interface ChargeJob {
  readonly order: string;
  /** The lock of the order. Do not log it: who has it can hold the lock. */
  readonly pass: string;
}

/** Called in the request. Nobody else works on the order from here on, until the job is done. */
export async function submit(
  locks: LockService,
  order: string,
  add: (job: ChargeJob) => Promise<unknown>,
): Promise<void> {
  // The job waits in the queue for less than the ttl.
  const lock = await locks.acquire(`order:${order}`, { ttl: 60_000, retry: false });
  const pass = await lock.detach();
  try {
    await add({ order, pass });
  } catch (error) {
    await (await locks.attach(pass)).release(); // no job will come
    throw error;
  }
}

/** Does the work in the worker. */
export async function perform(
  locks: LockService,
  { order, pass }: ChargeJob,
  charge: (order: string, token: number, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  await using lock = await locks.attach(pass);
  await charge(order, lock.fencingToken, lock.signal);
}
