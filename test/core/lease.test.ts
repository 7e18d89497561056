import { expect, test } from '@jest/globals';
import { Lease } from '../../lib/core/lease.js';
import { ID_LENGTH } from '../../lib/core/random-id.js';

test('every lease has its own random id of 128 bits (S5)', () => {
  const ids = Array.from({ length: 5_000 }, () => new Lease(['k'], 'me', 1_000).id);
  expect(new Set(ids).size).toBe(ids.length);
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{32}$/);
  expect(ID_LENGTH).toBe(32);
  // Each of the 16 bytes is random.
  for (let byte = 0; byte < 16; byte++) {
    expect(new Set(ids.map((id) => id.slice(2 * byte, 2 * byte + 2))).size).toBeGreaterThan(200);
  }
});
