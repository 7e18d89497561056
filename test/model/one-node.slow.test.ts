import { describe, expect, test } from '@jest/globals';
import { explore } from './explore.js';
import { type NodeScope, oneNode, oneNodeKey, oneNodeSteps } from './one-node.js';
import { type RecordRules, RIGHT } from './record.js';

// These searches visit every state of one node. `quorum.c` assumes the results; together they prove that fencing tokens
// are unique and increase.

/**
 * A record stays for 6 ticks after the end of its lock (the linger). A token that is more than 1 tick ahead of the
 * clock raises the marker (the lead). The deadline is 2 ticks, a third of the linger. With these values, a fall of the
 * clock by 1 tick does no harm.
 */
const RULES: RecordRules = { ...RIGHT, linger: 6 };
const SCOPE: NodeScope = { rules: RULES, ttl: 2, limit: 2, back: 1, ahead: 4 };
/** A single node or a Cluster raises nothing and has no marker. */
const ALONE: NodeScope = {
  ...SCOPE,
  rules: { ...RULES, marker: 'nothing', lead: 0 },
  raises: false,
  ahead: 0,
};

function search(scope: NodeScope) {
  return explore([oneNode(scope)], oneNodeSteps(scope), oneNodeKey);
}

function withRules(rules: Partial<RecordRules>, scope: Partial<NodeScope> = {}): NodeScope {
  return { ...SCOPE, ...scope, rules: { ...RULES, ...rules } };
}

// The promises: every grant, and every raise on which a claim counts, has the largest token, and no message revives an
// ended claim.
describe('with the rules of the library,', () => {
  test.each<[string, NodeScope]>([
    ['the clock falls again and again, and tokens come from clocks that are ahead', SCOPE],
    ['the clock never falls, and memory is short at releases', { ...SCOPE, back: 0, short: true }],
    ['a release keeps the record, which then still blocks other claims', { ...SCOPE, keep: 2, back: 0 }],
    [
      'the node loses its data twice, and its guard is longer than the skew',
      withRules({ guard: 6 }, { losses: 2 }),
    ],
    [
      'the node comes back with older data, and its clock never falls',
      withRules({ guard: 5, linger: 3 }, { crashes: 1, back: 0 }),
    ],
    ['there is a single node without a marker', ALONE],
    [
      'there is a single node without a marker, with locks of several keys',
      { ...ALONE, rules: { ...ALONE.rules, lead: 1 }, ahead: 1 },
    ],
    [
      'the deadline is one tick shorter than the linger, and the clock never falls',
      { ...SCOPE, limit: 5, back: 0 },
    ],
    [
      'the clock falls once, by one tick less than linger minus lead',
      { ...SCOPE, limit: 0, back: 4, falls: 1 },
    ],
    ['the clock falls by almost half of linger minus lead', { ...SCOPE, limit: 1, back: 2 }],
  ])('the search finds no violation while %s', (_what, scope) => {
    const { counterexample, states } = search(scope);
    expect(counterexample).toBeUndefined();
    expect(states).toBeGreaterThan(100);
  });
});

describe('with a broken rule or condition,', () => {
  test.each<[string, string, NodeScope]>([
    ['tokens', 'a new token may equal the token of the record', withRules({ above: false })],
    ['tokens', 'a release deletes the record', withRules({ lingers: false })],
    [
      'tokens',
      'there is no marker, and clocks are further apart than the linger',
      withRules({ marker: 'nothing', linger: 3 }),
    ],
    ['tokens', 'grants do not raise the marker', withRules({ marker: 'raises', linger: 3 })],
    ['tokens', 'raises do not raise the marker', withRules({ marker: 'grants', linger: 3 })],
    [
      'tokens',
      'a key without a record does not start above the marker',
      withRules({ aboveMarker: 'never', linger: 3 }),
    ],
    [
      'tokens',
      'a node raises a record that is not held',
      withRules({ raiseHeld: false, lead: 2, linger: 4 }, { back: 0 }),
    ],
    ['tokens', 'the guard is not longer than skew plus fall', withRules({ guard: 5 }, { losses: 1 })],
    ['tokens', 'the clock falls once, by linger minus lead', { ...SCOPE, limit: 0, back: 5, falls: 1 }],
    ['tokens', 'the clock falls by half of linger minus lead', withRules({ lead: 2 }, { limit: 0, back: 2 })],
    ['raising', 'a node accepts a raise below the token of the record', withRules({ raiseUpTo: false })],
    ['extending', 'a node extends a lock for a claim that does not hold it', withRules({ extendOwn: false })],
    ['revival', 'a node extends a lapsed lock', withRules({ extendHeld: false })],
    [
      'revival',
      'a duplicate of an ended acquisition is granted while the record has the id of that acquisition',
      withRules({ refuseOwn: false }),
    ],
    ['revival', 'an acquisition has no deadline', withRules({ deadline: false })],
    ['revival', 'the deadline is as long as the linger', { ...SCOPE, limit: 6, back: 0 }],
    ['revival', 'the deadline is as long as the linger minus two falls', { ...SCOPE, limit: 4 }],
    [
      'revival',
      'a release does not write that the record is free, and the clock falls',
      withRules({ free: false }),
    ],
  ])('the search finds a violation of the promise "%s" when %s', (broken, _what, scope) => {
    expect(search(scope).counterexample?.broken).toMatch(new RegExp(`^${broken}:`));
  });
});

describe('without a rule that is not needed here,', () => {
  test.each<[string, NodeScope]>([
    ['a node with a record ignores the marker', withRules({ aboveMarker: 'without a record' })],
    [
      'a release does not write that the record is free, and the clock never falls',
      withRules({ free: false }, { back: 0 }),
    ],
  ])('the search finds no violation when %s', (_what, scope) => {
    expect(search(scope).counterexample).toBeUndefined();
  });
});

test('a known gap: an outdated claim counts again if the node restarts with older data and its clock falls', () => {
  const scope = withRules({ guard: 6 }, { crashes: 1 });
  expect(search(scope).counterexample?.broken).toMatch(/^(extending|duplicate):/);
});
