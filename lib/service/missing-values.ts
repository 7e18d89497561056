import type { Log } from '../core/log.js';
import { missingValueIn } from '../core/keys.js';
import { quoted } from '../core/printable.js';
import { callerOf, type LockOrigin } from '../telemetry/lock-origin.js';

/** Most warnings of one module: the keys of `LockService` can be of any number. */
const MOST_WARNINGS = 100;

/** Warns about keys in which a value is missing: once for each method, and for calls of `LockService` once for each key. */
export class MissingValues {
  readonly #told = new Set<string>();

  constructor(private readonly log: Log) {}

  /** @param key - a key in which a value is missing */
  warn(key: string, origin: LockOrigin): void {
    const { method, label } = origin;
    const { text, before } = missingValueIn(key)!;
    const name = method ?? `${label} ${before}`;
    if (this.#told.has(name) || this.#told.size === MOST_WARNINGS) return;
    this.#told.add(name);
    this.log.warn(
      `${callerOf(origin)} locks ${quoted([key])}, where "${text}" probably stands for a missing ` +
        'value: all calls without the value exclude each other. ' +
        (text === '${' ? 'Write the key in backticks' : 'Refuse such a call, or correct the key') +
        '. The warning comes once.',
    );
  }
}
