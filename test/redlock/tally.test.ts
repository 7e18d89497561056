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

describe('decides when no later answer can change the outcome (S1)', () => {
  test.each<[number, (AcquireReply | Error | undefined)[], boolean]>([
    [1, [], false],
    [1, [granted()], true],
    [1, [held()], true],
    [3, [granted()], false],
    [3, [granted(), granted()], true],
    [3, [granted(), held()], false],
    [3, [granted(), held(), held()], true],
    [3, [held(), held()], true],
    [3, [away, away], true],
    [3, [granted(), away], false],
    // A quorum is impossible. The last vote decides between held and unavailable.
    [4, [granted(), granted(), held(), held()], true],
    [4, [granted(), granted(), held()], false],
    [5, [held(), held(), away], false],
    [5, [held(), held(), away, away], false],
    [5, [held(), held(), away, away, away], true],
    [5, [ran], true],
  ])('%d nodes, %#', (nodeCount, votes, decided) => {
    expect(tallyOf(nodeCount, votes).isDecided).toBe(decided);
  });
});

describe('the token is agreed on when a quorum gave the largest', () => {
  test.each<[number[], number, boolean]>([
    [[5, 5, 5], 5, true],
    [[5, 6, 6], 6, true],
    [[6, 5, 6], 6, true],
    [[6, 6, 5], 6, true],
    [[7, 5, 6], 7, false],
    [[5, 5, 6], 6, false],
  ])('%j', (tokens, token, agreed) => {
    const tally = tallyOf(3, tokens.map(granted));
    expect([tally.token, tally.isAgreed]).toEqual([token, agreed]);
  });
});

describe('the reason of a refusal', () => {
  const nodes = scriptedNodes(3);

  test('reports the holder, and the time until a quorum can be free, when a quorum refused', () => {
    const error = tallyOf(3, [granted(), held('x', 400), held('x', 900)]).failure(lease, nodes);
    expect(error).toBeInstanceOf(LockHeldError);
    expect(error).toMatchObject({ owner: 'owner of x', retryAfter: 400 });
  });

  test('reports the answer of each node without a quorum of votes', () => {
    const error = tallyOf(3, [granted(), away, undefined]).failure(lease, nodes);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as LockUnavailableError).votes).toEqual([
      { node: 'a', vote: 'granted' },
      { node: 'b', vote: 'error', error: away },
      { node: 'c', vote: 'pending' },
    ]);
  });

  test('drops the earlier answers of nodes that are asked again', () => {
    const tally = tallyOf(3, [granted(), held(), held()]);
    tally.forget(0b110);
    expect(tally.isDecided).toBe(false);
    expect(tally.isHeld).toBe(false);
    tally.count(1, granted());
    expect(tally.isWon).toBe(true);
  });
});

describe('permits are won in one and the same slot (S20)', () => {
  const slot = (...slots: number[]): AcquireReply => ({ granted: true, token: 10 + (slots[0] ?? 0), slots });
  const full = (id: string, remaining: number): AcquireReply => ({
    granted: false,
    holder: { id, owner: `owner of ${id}`, remaining, since: 5, fencingToken: 7, mode: 'permits', slot: 0 },
  });

  test.each<[string, (AcquireReply | Error | undefined)[], Partial<Tally>]>([
    ['all alike', [slot(1), slot(1), slot(1)], { isWon: true, slots: [1], token: 11, isAgreed: true }],
    ['a quorum alike', [slot(2), slot(1), slot(1)], { isWon: true, slots: [1], token: 11, together: 0b110 }],
    [
      'no two alike',
      [slot(0), slot(1), slot(2)],
      { isWon: false, isSplitInSlots: true, isDecided: true, together: 0b001 },
    ],
    ['two alike may come yet', [slot(0), slot(1)], { isWon: false, isDecided: false }],
    [
      'two of five alike, one away',
      [slot(0), slot(1), slot(1), slot(2), away],
      { isSplitInSlots: true, together: 0b110, slots: [1] },
    ],
    [
      'no quorum granted',
      [slot(0), full('x', 5), full('y', 5)],
      { isWon: false, isSplitInSlots: false, isHeld: true },
    ],
    [
      'of several keys each is alike',
      [slot(0, 1), slot(0, 2), slot(0, 1)],
      { isWon: true, slots: [0, 1], together: 0b101 },
    ],
  ])('%s', (_name, votes, expected) => {
    expect(tallyOf(votes.length > 2 ? votes.length : 3, votes)).toMatchObject(expected);
  });

  test('takes the token of the won slot', () => {
    const tally = tallyOf(3, [slot(5), slot(1), slot(1)]);
    expect([tally.token, tally.isAgreed]).toEqual([11, true]);
  });

  test('counts only the chosen slot after nodes were asked to free the others', () => {
    const tally = tallyOf(5, [slot(1), slot(2), slot(3), slot(4)]);
    tally.fixSlots();
    tally.forget(0b01110);
    for (const node of [1, 2, 4]) tally.count(node, slot(2));
    expect(tally).toMatchObject({ isWon: false, slots: [1], together: 0b00001 });
    for (const node of [1, 2]) tally.count(node, slot(1));
    expect(tally).toMatchObject({ isWon: true, slots: [1], together: 0b00111 });
  });

  test('reports all named holders, and the time until the first of them can end', () => {
    const error = tallyOf(3, [full('x', 400), full('y', 900), slot(1)]).failure(lease, scriptedNodes(3));
    expect(error).toMatchObject({ owner: 'owner of x', retryAfter: 400 });
    expect((error as LockHeldError).holders.map(({ id, slot: one }) => [id, one])).toEqual([
      ['x', 0],
      ['y', 0],
    ]);
  });
});
