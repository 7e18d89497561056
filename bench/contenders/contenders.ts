import type { Contender } from './contender.js';
import { KINDS } from './kinds.js';
import { murlock } from './murlock.js';
import { nestjsRedisLock } from './nestjs-redis-lock.js';
import { ours, oursDecorated } from './ours.js';
import { raw } from './raw.js';
import { redisSemaphore, redisSemaphorePermits } from './redis-semaphore.js';
import { nestRedlock, redlock } from './redlock.js';
import { redlockUniversal } from './redlock-universal.js';

/** All compared libraries in the order of the tables. Ratios refer to the first library. */
export const CONTENDERS: readonly Contender[] = [
  raw,
  ours,
  redlock,
  redlockUniversal,
  redisSemaphore,
  murlock,
  nestRedlock,
  nestjsRedisLock,
];

/** Returns the compared library with this name. */
export function contender(name: string): Contender {
  const found = [...CONTENDERS, oursDecorated, ...KINDS, redisSemaphorePermits].find(
    (each) => each.name === name,
  );
  if (!found) {
    const names = CONTENDERS.map((each) => each.name).join(', ');
    throw new Error(`There is no contender "${name}"; there are ${names}`);
  }
  return found;
}
