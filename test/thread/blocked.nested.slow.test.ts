import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { until } from '../support/until.js';
import { type Contest, TTL } from './blocked-holder.js';
import { RedisContests } from './redis-contests.js';

// Nested calls of a holder whose thread renews the lock (S18, S31).

let stage: RedisContests;

beforeAll(async () => {
  stage = await RedisContests.start('nested-holder');
});
afterEach(() => stage.endContests());
afterAll(() => stage.stop());

const HELD = { granted: undefined, after: expect.objectContaining({ held: true, aborted: false }) };

function nested(key: string): Promise<Contest> {
  return stage.contest(key, { renew: 'thread' });
}

test("a lock with renew: 'thread' is not granted while its holder is blocked in a nested call, beside one, or after one, but after the end of all calls", async () => {
  const [joined, extended, beside, outlived] = await Promise.all(
    ['joined', 'extended', 'beside', 'outlived'].map(nested) as unknown as [
      Contest,
      Contest,
      Contest,
      Contest,
    ],
  );
  const inJoined = async (): Promise<void> => {
    expect(await joined.blockedFor(1.2, 'block-joined')).toEqual(HELD);
    expect(await joined.blockedFor(1.2, 'block')).toEqual(HELD);
  };
  const inExtended = async (): Promise<void> => {
    // On a busy machine, an answer may come too late.
    await until(async () => (await extended.holder.ask(`extend-joined ${1.5 * TTL}`)).remaining > TTL);
    // The thread renews the lock with the longer ttl.
    expect(await extended.blockedFor(2, 'block-joined')).toEqual(HELD);
  };
  const inBeside = async (): Promise<void> => {
    expect(await beside.blockedFor(1.2, 'block-beside')).toEqual(HELD);
    expect(await beside.holder.ask('show')).toMatchObject({ held: true, aborted: false });
  };
  const inOutlived = async (): Promise<void> => {
    expect(await outlived.blockedFor(1.2, 'outlive')).toEqual(HELD);
    outlived.holder.tell('end');
    expect(await outlived.grantedUntil()).toBeDefined();
  };
  await Promise.all([inJoined(), inExtended(), inBeside(), inOutlived()]);
  for (const contest of [joined, extended, beside]) {
    contest.holder.tell('end');
    expect(await contest.grantedUntil()).toBeDefined();
  }
});

test('the loss of a lock while a nested call blocks the event loop is known to its first statement, and is told to the listeners of both calls', async () => {
  const lost = await nested('lost');
  await lost.holder.ask(`lose-joined ${1.2 * TTL}`);
  await stage.client.flushall();
  expect(await lost.holder.answer()).toMatchObject({
    held: false,
    thrown: 'LockLostError',
    error: expect.stringContaining('fewer than a quorum of nodes still store it'),
    // One signal serves both calls, in the context of the call that has read it first.
    told: ['outer', 'outer'],
  });
});
