import type { LockStore } from './ports.js';

/** @throws RangeError when one of the stores cannot keep this ttl */
export function checkTtl(stores: readonly LockStore[], ttl: number): void {
  for (const { name, ttls } of stores) {
    if (!ttls || (ttl >= ttls.least && ttl % ttls.step === 0)) continue;
    throw new RangeError(
      `Expected \`ttl\` to be a multiple of ${ttls.step} ms, at least ${ttls.least}, for ${name}, got ${ttl}: ${ttls.reason}`,
    );
  }
}
