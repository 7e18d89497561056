import { describe, expect, test } from '@jest/globals';
import { nodeTimeLimit, usableTtl } from '../../lib/redlock/validity.js';

describe('usableTtl (S4: ttl minus 1 % minus 2 ms)', () => {
  test.each([
    [10_000, 0.01, 9_898],
    [1_000, 0.01, 988],
    [10, 0.01, 7.9],
    [10, 0.5, 3],
    [1_000, 0, 998],
  ])('a ttl of %d ms with a drift factor of %d can be used for %d ms', (ttl, driftFactor, usable) => {
    expect(usableTtl(ttl, driftFactor)).toBeCloseTo(usable, 9);
  });
});

describe('nodeTimeLimit (S3: far below the ttl)', () => {
  test.each([
    // 5 % of the ttl
    [10_000, undefined, 500],
    [60_000, undefined, 3_000],
    // at least 50 ms
    [1_000, undefined, 50],
    [500, undefined, 50],
    // at most a fifth of the ttl
    [100, undefined, 20],
    [10, undefined, 2],
    // configured
    [10_000, 120, 120],
    // configured, but the ttl is too short for it
    [100, 120, 20],
  ])(
    'a ttl of %d ms and a configured limit of %p give a time limit of %d ms for each node',
    (ttl, configured, limit) => {
      expect(nodeTimeLimit(ttl, configured)).toBe(limit);
    },
  );

  test.each([
    [10_000, undefined, 1_000],
    [60_000, undefined, 3_000],
    // at most a fifth of the ttl
    [1_000, undefined, 200],
    // configured
    [10_000, 120, 120],
  ])(
    'a ttl of %d ms and a configured limit of %p give an idle node a time limit of %d ms',
    (ttl, configured, limit) => {
      expect(nodeTimeLimit(ttl, configured, true)).toBe(limit);
    },
  );
});
