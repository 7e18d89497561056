import { byteLengthOf, LONGEST_KEY_BYTES, tooLong } from '../core/keys.js';
import type { LockMode } from '../core/lock-mode.js';
import type { LockStore } from '../core/ports.js';
import { quoted } from '../core/printable.js';

/** Most bytes of a key together with the prefix of the module, in UTF-8. Every store has room for this length. */
const LONGEST_STORED_BYTES = 2_048;

/** The keys that the stores of one module can store. */
export class KeyRule {
  readonly #choosy: readonly LockStore[];
  readonly #most: number;

  /** @param prefix - the `keyPrefix` of the module */
  constructor(stores: readonly LockStore[], prefix = '') {
    this.#choosy = stores.filter((store) => store.refuses);
    this.#most = LONGEST_STORED_BYTES - byteLengthOf(prefix);
  }

  /** @throws RangeError when one of the stores can never store a lock of these keys */
  check(keys: readonly string[], mode: LockMode, permits?: number): void {
    // `keysOf` has already checked the length without the prefix.
    if (this.#most < LONGEST_KEY_BYTES) this.#checkLength(keys);
    for (const store of this.#choosy) {
      const reason = store.refuses?.(keys, mode, permits);
      if (reason !== undefined)
        throw new RangeError(`${store.name} cannot store a lock of ${quoted(keys)}: ${reason}`);
    }
  }

  #checkLength(keys: readonly string[]): void {
    for (const key of keys)
      if (byteLengthOf(key) > this.#most)
        throw tooLong('`key`', key, this.#most, ', because of the `keyPrefix`');
  }
}

/** @throws RangeError when one of the stores cannot keep this ttl */
export function checkTtl(stores: readonly LockStore[], ttl: number): void {
  for (const { name, ttls } of stores) {
    if (!ttls || (ttl >= ttls.least && ttl % ttls.step === 0)) continue;
    throw new RangeError(
      `Expected \`ttl\` to be a multiple of ${ttls.step} ms, at least ${ttls.least}, for ${name}, got ${ttl}: ${ttls.reason}`,
    );
  }
}
