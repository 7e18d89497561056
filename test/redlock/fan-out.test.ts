import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { fanOut } from '../../lib/redlock/fan-out.js';
import type { LockStore } from '../../lib/core/ports.js';
import { scriptedNodes } from '../support/scripted-node.js';

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  const timers = jest.getTimerCount();
  jest.useRealTimers();
  if (timers > 0) throw new Error(`${timers} timers were left running`);
});

const nodes = scriptedNodes(3);
const never = new Promise<string>(() => {});
const all = (): boolean => false;

/** Each node answers with the entry of `replies` for its name, or never. */
function asking(replies: Record<string, Promise<string>>): (node: LockStore) => Promise<string> {
  return (node) => replies[node.name] ?? never;
}

test('fanOut resolves with every answer when all nodes have answered', async () => {
  const gone = new Error('gone');
  const answers = await fanOut(
    nodes,
    100,
    asking({ a: Promise.resolve('yes'), b: Promise.reject(gone), c: Promise.resolve('no') }),
    all,
  );
  expect(answers.map(({ node, ...rest }) => [node.name, rest])).toEqual([
    ['a', { reply: 'yes' }],
    ['b', { error: gone }],
    ['c', { reply: 'no' }],
  ]);
});

test('fanOut counts a synchronous throw of a node as an error of that node, and asks the other nodes', async () => {
  const broken = new Error('broken');
  const ask = (node: LockStore): Promise<string> => {
    if (node.name === 'a') throw broken;
    return Promise.resolve('yes');
  };
  const answers = await fanOut(nodes, 100, ask, all);
  const found = new Map(answers.map(({ node, reply, error }) => [node.name, error ?? reply]));
  expect(found).toEqual(
    new Map<string, unknown>([
      ['b', 'yes'],
      ['c', 'yes'],
      ['a', broken],
    ]),
  );
});

test('fanOut resolves as soon as the answers decide the outcome, without waiting for the slowest node', async () => {
  const answers = await fanOut(
    nodes,
    100,
    asking({ a: Promise.resolve('yes'), b: Promise.resolve('yes') }),
    (soFar) => soFar.length === 2,
  );
  expect(answers).toHaveLength(2);
});

test('fanOut settles at the time limit and counts each missing answer as an error (S1, S3)', async () => {
  const asked = fanOut(nodes, 100, asking({ a: Promise.resolve('yes') }), all);
  await jest.advanceTimersByTimeAsync(99);
  await expect(Promise.race([asked, 'pending'])).resolves.toBe('pending');
  await jest.advanceTimersByTimeAsync(2);
  const answers = await asked;
  expect(answers.map(({ node, error }) => [node.name, error?.message])).toEqual([
    ['a', undefined],
    ['b', 'no answer within 100 ms'],
    ['c', 'no answer within 100 ms'],
  ]);
});

test('fanOut asks all nodes before any has answered (S2)', () => {
  const asked: string[] = [];
  void fanOut(
    nodes,
    100,
    (node) => {
      asked.push(node.name);
      return never;
    },
    all,
  );
  expect(asked).toEqual(['a', 'b', 'c']);
  jest.runAllTimers();
});

test('fanOut resolves when a signal aborts, and removes its listener from the signal', async () => {
  const controller = new AbortController();
  const remove = jest.spyOn(controller.signal, 'removeEventListener');
  const asked = fanOut(nodes, 100, () => never, all, [controller.signal]);
  controller.abort();
  await expect(asked).resolves.toEqual([]);
  expect(remove).toHaveBeenCalledTimes(1);
});

test.each([
  ['a reply', (reply: (text: string) => void) => reply('late')],
  ['an error', (_reply: unknown, fail: (error: Error) => void) => fail(new Error('late'))],
])('fanOut ignores %s after the decision, without an unhandled rejection', async (_what, settle) => {
  let settleLate = (): void => {};
  const late = new Promise<string>((resolve, reject) => {
    settleLate = () => settle(resolve, reject);
  });
  const answers = await fanOut(
    nodes,
    100,
    asking({ a: Promise.resolve('yes'), b: late }),
    (soFar) => soFar.length === 1,
  );
  settleLate();
  await jest.advanceTimersByTimeAsync(0);
  expect(answers.map(({ node, ...rest }) => [node.name, rest])).toEqual([['a', { reply: 'yes' }]]);
});
