import { beforeEach, expect, jest, test } from '@jest/globals';
import { now } from '../../../lib/core/clock.js';
import { LockHeldError } from '../../../lib/core/errors.js';
import type { Store } from '../../../lib/core/ports.js';
import type { AttemptResult } from '../../../lib/redlock/wait/attempt.js';
import { LocalQueue, type Waiter } from '../../../lib/redlock/wait/local-queue.js';
import { ScriptedNode } from '../../support/scripted-node.js';

type OnMessage = Parameters<NonNullable<Store['listen']>>[1];

const id = { keys: ['k'], mode: 'permits', process: '0'.repeat(16), number: 1, owner: 'bob' } as const;

let nodes: ScriptedNode[];
let queue: LocalQueue;
let waiter: Waiter;
/** Sends a message of the queue node. */
let tell: OnMessage;

beforeEach(() => {
  nodes = [0, 1, 2].map(() => new ScriptedNode());
  nodes[0]!.listen = (_, onMessage) => {
    tell = onMessage;
    return { ready: true, stop: () => undefined };
  };
  queue = new LocalQueue(nodes, id, { mode: 'permits', permits: 5 });
  waiter = queue.join(now(), { delay: 200, jitter: 0 });
});

/** Makes an attempt that a quorum refuses. Returns `true` if it asked all nodes, as a waiter does whose turn it is. */
function attempt(atQueueNode: AttemptResult['atQueueNode'], wasGranted = atQueueNode === 'granted'): boolean {
  const plan = queue.plan(waiter, 30_000, true, false);
  queue.note(plan, {
    ...{ outcome: new LockHeldError(['k'], 'carol', 5_000), atQueueNode, wasGranted, split: false },
    ...{ cutShort: false, nextIsFirst: false, isFinal: false, isRuledOut: false },
  });
  return !plan.queueNodeFirst;
}

test.each([
  ['is no turn of a waiter that the other nodes refused after this grant', 'granted', true, undefined, false],
  [
    'is no turn of a waiter for which this node has freed a permit that the others did not have',
    'refused',
    true,
    undefined,
    false,
  ],
  [
    'is no turn of a waiter that the other nodes refused before this node answered',
    'pending',
    false,
    undefined,
    false,
  ],
  ['is the turn of a waiter that this node refused', 'refused', false, undefined, true],
  [
    'about a release is the turn also of a waiter that the other nodes refused',
    'granted',
    true,
    'e'.repeat(32),
    true,
  ],
] as const)('a message of the queue node %s (S8)', (_, atQueueNode, wasGranted, released, isTurn) => {
  attempt(atQueueNode, wasGranted);
  const cutTo = jest.spyOn(waiter.sleep, 'cutTo');
  tell(0, true, released);
  expect(cutTo.mock.calls).toEqual(isTurn ? [[0]] : []);
  expect(attempt('refused')).toBe(isTurn);
});

test('a message about a free permit is no turn if a former queue node sends it, which grants attempts that the others refuse (S8)', () => {
  attempt('refused');
  nodes[0]!.available = false;
  const tellFirst = tell;
  nodes[1]!.listen = nodes[0]!.listen!;
  attempt('refused');
  const cutTo = jest.spyOn(waiter.sleep, 'cutTo');
  tellFirst(0, true, undefined);
  expect(cutTo).not.toHaveBeenCalled();
  tellFirst(0, true, 'e'.repeat(32));
  tell(0, true, undefined);
  expect(cutTo.mock.calls).toEqual([[0], [0]]);
});

test('refusals of the queue node between attempts that the other nodes refuse are no progress, and a release is (S8)', () => {
  const splits = (): number => queue.plan(waiter, 30_000, true, false).splits;
  attempt('granted');
  attempt('refused');
  attempt('granted');
  expect(splits()).toBe(2);
  // The release of a failed attempt of another waiter has a pause, and is no turn.
  tell(15, false, 'e'.repeat(32));
  expect(splits()).toBe(2);
  tell(0, true, 'e'.repeat(32));
  expect(splits()).toBe(0);
});
