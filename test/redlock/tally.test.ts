import { describe, expect, test } from '@jest/globals';
import { Lease } from '../../lib/core/lease.js';
import { LockHeldError, LockUnavailableError } from '../../lib/core/errors.js';
import type { AcquireReply } from '../../lib/core/ports.js';
import { Tally } from '../../lib/redlock/tally.js';
import { scriptedNodes } from '../support/scripted-node.js';

const granted = (token = 7): AcquireReply => ({ granted: true, token });
const held = (id = 'x', remaining = 500): AcquireReply => ({
  granted: false,
  holder: { id, owner: `owner of ${id}`, remaining },
});
const ran: AcquireReply = { ...held('tick'), ran: true } as AcquireReply;
const away = new Error('away');
const lease = new Lease(['k'], 'me', 1_000);

/** @param votes - in the order of the nodes; `undefined` for a vote that has not come */
function tallyOf(nodeCount: number, votes: readonly (AcquireReply | Error | undefined)[]): Tally {
  const tally = new Tally(nodeCount);
  for (const [node, vote] of votes.entries()) if (vote) tally.count(node, vote);
  return tally;
}

describe('a tally decides only when no later answer can change the outcome (S1)', () => {
  test.each<[string, number, (AcquireReply | Error | undefined)[], boolean]>([
    ['undecided when 0 of 1 node answered', 1, [], false],
    ['decided when 1 of 1 node granted', 1, [granted()], true],
    ['decided when 1 of 1 node refused', 1, [held()], true],
    ['undecided when 1 of 3 nodes granted', 3, [granted()], false],
    ['decided when 2 of 3 nodes granted', 3, [granted(), granted()], true],
    ['undecided when 1 of 3 nodes granted and 1 refused', 3, [granted(), held()], false],
    ['decided when 1 of 3 nodes granted and 2 refused', 3, [granted(), held(), held()], true],
    ['decided when 2 of 3 nodes refused', 3, [held(), held()], true],
    ['decided when 2 of 3 nodes failed', 3, [away, away], true],
    ['undecided when 1 of 3 nodes granted and 1 failed', 3, [granted(), away], false],
    // A grant by a quorum is impossible here. The last vote decides between LockHeldError and LockUnavailableError.
    ['decided when 2 of 4 nodes granted and 2 refused', 4, [granted(), granted(), held(), held()], true],
    ['undecided when 2 of 4 nodes granted and 1 refused', 4, [granted(), granted(), held()], false],
    ['undecided when 2 of 5 nodes refused and 1 failed', 5, [held(), held(), away], false],
    ['undecided when 2 of 5 nodes refused and 2 failed', 5, [held(), held(), away, away], false],
    ['decided when 2 of 5 nodes refused and 3 failed', 5, [held(), held(), away, away, away], true],
    ['decided when 1 of 5 nodes reported that the tick has run', 5, [ran], true],
  ])('a tally is %s', (_name, nodeCount, votes, decided) => {
    expect(tallyOf(nodeCount, votes).isDecided).toBe(decided);
  });
});

describe('a tally agrees on a token when a quorum gave the largest token', () => {
  test.each<[number[], number, boolean]>([
    [[5, 5, 5], 5, true],
    [[5, 6, 6], 6, true],
    [[6, 5, 6], 6, true],
    [[6, 6, 5], 6, true],
    [[7, 5, 6], 7, false],
    [[5, 5, 6], 6, false],
  ])(
    'for the tokens %j of three nodes, the `token` of a tally is %d and `isAgreed` is %s',
    (tokens, token, agreed) => {
      const tally = tallyOf(3, tokens.map(granted));
      expect([tally.token, tally.isAgreed]).toEqual([token, agreed]);
    },
  );
});

describe('a tally', () => {
  const nodes = scriptedNodes(3);

  test('when a quorum refused, the error of a tally names the holder and the time until a quorum can be free', () => {
    const error = tallyOf(3, [granted(), held('x', 400), held('x', 900)]).failure(lease, nodes);
    expect(error).toBeInstanceOf(LockHeldError);
    expect(error).toMatchObject({ owner: 'owner of x', retryAfter: 400 });
  });

  test('the error of a tally lists the vote of each node when no quorum granted or refused', () => {
    const error = tallyOf(3, [granted(), away, undefined]).failure(lease, nodes);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as LockUnavailableError).votes).toEqual([
      { node: 'a', vote: 'granted' },
      { node: 'b', vote: 'error', error: away },
      { node: 'c', vote: 'pending' },
    ]);
  });

  test('a tally drops the earlier votes of nodes that are asked again', () => {
    const tally = tallyOf(3, [granted(), held(), held()]);
    tally.forget(0b110);
    expect(tally.isDecided).toBe(false);
    expect(tally.isHeld).toBe(false);
    tally.count(1, granted());
    expect(tally.isWon).toBe(true);
  });
});

describe('permits (which need one slot on a quorum, S20)', () => {
  const slot = (...slots: number[]): AcquireReply => ({ granted: true, token: 10 + (slots[0] ?? 0), slots });
  const full = (id: string, remaining: number): AcquireReply => ({
    granted: false,
    holder: { id, owner: `owner of ${id}`, remaining, since: 5, fencingToken: 7, mode: 'permits', slot: 0 },
  });

  test.each<[string, (AcquireReply | Error | undefined)[], Partial<Tally>]>([
    [
      'permits are won when all nodes grant the same slot',
      [slot(1), slot(1), slot(1)],
      { isWon: true, slots: [1], token: 11, isAgreed: true },
    ],
    [
      'permits are won when a quorum grants the same slot',
      [slot(2), slot(1), slot(1)],
      { isWon: true, slots: [1], token: 11, together: 0b110 },
    ],
    [
      'permits are split when three nodes grant three different slots',
      [slot(0), slot(1), slot(2)],
      { isWon: false, isSplitInSlots: true, isDecided: true, together: 0b001 },
    ],
    [
      'permits are undecided while the third node can still grant a slot that another node granted',
      [slot(0), slot(1)],
      { isWon: false, isDecided: false },
    ],
    [
      'permits are split when two of five nodes grant the same slot and one does not answer',
      [slot(0), slot(1), slot(1), slot(2), away],
      { isSplitInSlots: true, together: 0b110, slots: [1] },
    ],
    [
      'permits count as held when a quorum refused',
      [slot(0), full('x', 5), full('y', 5)],
      { isWon: false, isSplitInSlots: false, isHeld: true },
    ],
    [
      'permits are won when a quorum grants the same slot for each of several keys',
      [slot(0, 1), slot(0, 2), slot(0, 1)],
      { isWon: true, slots: [0, 1], together: 0b101 },
    ],
  ])('%s', (_name, votes, expected) => {
    expect(tallyOf(votes.length > 2 ? votes.length : 3, votes)).toMatchObject(expected);
  });

  test('a tally of permits has the fencing token of the slot that a quorum granted', () => {
    const tally = tallyOf(3, [slot(5), slot(1), slot(1)]);
    expect([tally.token, tally.isAgreed]).toEqual([11, true]);
  });

  test('permits are won only with grants of the slot that was chosen before other nodes were asked again', () => {
    const tally = tallyOf(5, [slot(1), slot(2), slot(3), slot(4)]);
    tally.fixSlots();
    tally.forget(0b01110);
    for (const node of [1, 2, 4]) tally.count(node, slot(2));
    expect(tally).toMatchObject({ isWon: false, slots: [1], together: 0b00001 });
    for (const node of [1, 2]) tally.count(node, slot(1));
    expect(tally).toMatchObject({ isWon: true, slots: [1], together: 0b00111 });
  });

  test('the error of refused permits names all reported holders, and the time until the first of them can expire', () => {
    const error = tallyOf(3, [full('x', 400), full('y', 900), slot(1)]).failure(lease, scriptedNodes(3));
    expect(error).toMatchObject({ owner: 'owner of x', retryAfter: 400 });
    expect((error as LockHeldError).holders.map(({ id, slot: one }) => [id, one])).toEqual([
      ['x', 0],
      ['y', 0],
    ]);
  });
});
