import { describe, expect, test } from '@jest/globals';
import { explore } from './explore.js';
import { RIGHT_RULE, WRONG_RULES } from './node.js';
import { keyOf, protocol, worldOf } from './protocol.js';

const LEVEL = [0, 0, 0];
/** One ahead, two ahead, all different, and so far apart that a raise skips counters. */
const UNEVEN = [
  [2, 0, 0],
  [0, 2, 2],
  [2, 1, 0],
  [3, 1, 0],
];

describe('tokens are unique and grow in real-time order, over three nodes (J2, J3)', () => {
  test.each([
    ['locks end at any time', { claims: 2 }, [LEVEL, ...UNEVEN]],
    ['a message is executed twice', { claims: 2, duplicates: 1 }, [LEVEL, ...UNEVEN]],
    ['two messages are executed twice', { claims: 2, duplicates: 2 }, [LEVEL]],
    ['counters jump with the clock', { claims: 2, duplicates: 1, jumps: 1 }, [LEVEL]],
    ['a node loses its data and counts on from the clock', { claims: 2, duplicates: 1, losses: 1 }, [LEVEL]],
    ['three claims compete', { claims: 3 }, [LEVEL]],
  ])('while %s', (_what, scope, starts) => {
    const worlds = starts.map((counters) => worldOf({ ...scope, counters }));
    const { counterexample, states } = explore(worlds, protocol(RIGHT_RULE), keyOf);
    expect(counterexample).toBeUndefined();
    // An exploration that cannot move proves nothing.
    expect(states).toBeGreaterThan(1_000);
  });
});

describe('the check finds a broken rule when', () => {
  const worlds = [LEVEL, ...UNEVEN].map((counters) => worldOf({ counters, claims: 2, duplicates: 1 }));

  test.each(Object.entries(WRONG_RULES))('%s', (_what, rule) => {
    const { counterexample } = explore(worlds, protocol(rule), keyOf);
    expect(counterexample?.broken).toMatch(/^J[23]/);
  });

  test('a node that lost its data counts from zero: why counters follow the clock', () => {
    const world = worldOf({ counters: LEVEL, claims: 2, losses: 1 });
    const { counterexample } = explore(
      [world],
      protocol(RIGHT_RULE, () => 0),
      keyOf,
    );
    expect(counterexample?.broken).toMatch(/^J[23]/);
  });

  test('a quorum is half of the nodes: why it is more (S1)', () => {
    const half = { ...RIGHT_RULE, needed: (count: number) => Math.floor(count / 2) };
    const { counterexample } = explore(worlds, protocol(half), keyOf);
    expect(counterexample?.broken).toMatch(/^J[23]/);
  });
});

test('ownership alone would do if no message were executed twice: why the check executes them twice', () => {
  const rule =
    WRONG_RULES['the token is written back wherever the claim holds the lock, whatever the counter']!;
  const once = [LEVEL, ...UNEVEN].map((counters) => worldOf({ counters, claims: 2 }));
  expect(explore(once, protocol(rule), keyOf).counterexample).toBeUndefined();
});

test('the shortest way to a duplicate token without writing back takes one node in common', () => {
  const { counterexample } = explore(
    [worldOf({ counters: LEVEL, claims: 2 })],
    protocol(WRONG_RULES['the token is not written back']!),
    keyOf,
  );
  expect(counterexample).toEqual({
    broken: 'J2: token 2 is given twice',
    events: [
      'claim 0 is invoked',
      'claim 0 acquires on node 0: 1',
      'claim 1 is invoked',
      'claim 1 acquires on node 0: 2',
      'claim 1 acquires on node 1: 1',
      'claim 0 acquires on node 1: 2',
      'claim 0 returns with 2',
      'claim 1 returns with 2',
    ],
  });
});
