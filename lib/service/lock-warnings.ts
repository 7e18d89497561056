import { missingValueIn } from '../core/keys.js';
import type { Log } from '../core/log.js';
import { quoted } from '../core/printable.js';
import { callerOf, type LockOrigin } from '../telemetry/lock-origin.js';
import type { LockCall } from './lock-call.js';

/** With a shorter ttl, in milliseconds, a usual pause of the process or of the network loses the lock. */
export const RISKY_TTL_MS = 1_000;

/** Most warnings of one kind: the labels and keys of `LockService` can be of any number. */
const MOST_WARNINGS = 100;

/** Warnings about calls that are legal, but are probably a mistake. Each comes once for its cause. */
export class LockWarnings {
  /** The causes of which each kind of warning has told. */
  readonly #told = { ttl: new Set<string>(), wait: new Set<string>(), value: new Set<string>() };

  constructor(private readonly log: Log) {}

  /** Warns once for each ttl. */
  shortTtl({ origin, options: { ttl } }: LockCall): void {
    this.#once(
      'ttl',
      `${ttl}`,
      `${callerOf(origin)} locks with \`ttl: ${ttl}\`: below ${RISKY_TTL_MS} ms, a usual pause of the process or of the network ` +
        'loses the lock. Give a longer `ttl`; it does not limit the method, because the lock is renewed.',
    );
  }

  /**
   * Warns once for each method or label about a call that is made under a lock for which it waits. The wait may be right:
   * the code under that lock need not await the call.
   *
   * @param held - the keys of the lock
   */
  waitsForItself({ origin, options: { reentrant } }: LockCall, held: readonly string[]): void {
    const remedy = reentrant
      ? 'Another nested call has joined that lock: await the calls one after the other'
      : 'Give the nested call `reentrant: true`, or lock in one of the two places';
    this.#once(
      'wait',
      nameOf(origin),
      `${callerOf(origin)} is called under a lock of ${quoted(held)}, and waits until that lock ends. If the code under the lock ` +
        `awaits the call, the call waits for itself and fails. ${remedy}; if nobody awaits it, start it with \`outside\`.`,
    );
  }

  /**
   * Warns once for each method, and for calls of `LockService` once for each key.
   *
   * @param key - a key in which a value is missing
   */
  missingValue(key: string, origin: LockOrigin): void {
    const { method, label } = origin;
    const { text, before } = missingValueIn(key)!;
    this.#once(
      'value',
      method ?? `${label} ${before}`,
      `${callerOf(origin)} locks ${quoted([key])}, where "${text}" probably stands for a missing ` +
        'value: all calls without the value exclude each other. ' +
        `${text === '${' ? 'Write the key in backticks' : 'Refuse such a call, or correct the key'}.`,
    );
  }

  #once(kind: 'ttl' | 'wait' | 'value', cause: string, message: string): void {
    const told = this.#told[kind];
    if (told.has(cause) || told.size === MOST_WARNINGS) return;
    told.add(cause);
    this.log.warn(`${message} The warning comes once.`);
  }
}

function nameOf({ method, label }: LockOrigin): string {
  return method ?? label;
}
