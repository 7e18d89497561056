import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { RedisContests } from './redis-contests.js';

let stage: RedisContests;

beforeAll(async () => {
  stage = await RedisContests.start();
});
afterEach(() => stage.endContests());
afterAll(() => stage.stop());

test("a lock or a term with renew: 'thread' is not granted while its holder is blocked for 5 ttl, and the first statement knows that it is held", async () => {
  await stage.client.call('ACL', 'SETUSER', 'holder', 'on', '>secret', '~*', '&*', '+@all');
  const all = await Promise.all([
    stage.contest('one', { renew: 'thread' }),
    stage.contest('three', { renew: 'thread' }, 3),
    stage.contest('clients', { renew: 'thread' }, 1, { hasClients: true }),
    stage.contest('user', { renew: 'thread' }, 1, { user: 'holder:secret@' }),
    stage.contest('shared', { renew: 'thread', mode: 'shared' }),
    stage.contest('permit', { renew: 'thread', permits: 1 }),
    stage.contest('first+second', { renew: 'thread' }, 3),
    stage.contest('leader:all', {}, 1, { leads: true }),
  ]);
  const blocked = Promise.all(all.map((each) => each.blockedFor(5)));
  // One of the three nodes fails during the block.
  await stage.servers[2]!.kill();
  const results = await blocked;
  await stage.servers[2]!.start();
  for (const { granted, after } of results) {
    expect(granted).toBeUndefined();
    expect(after).toMatchObject({ held: true, aborted: false });
    // The thread has renewed the lock in its last third at the latest.
    expect(after.remaining).toBeGreaterThan(0);
  }
  for (const each of all) {
    const { holder } = each;
    expect(await holder.ask('show')).toMatchObject({ held: true, aborted: false });
    expect(await holder.ask('release')).toMatchObject({ held: false, aborted: false });
    expect(await each.grantedUntil()).toBeDefined();
  }
});

test('a lock with renew: true is granted while its holder is blocked, and its holder is told', async () => {
  const control = await stage.contest('control', { renew: true });
  const { granted, after } = await control.blockedFor(1.5);
  expect(granted).toBeDefined();
  expect(after).toMatchObject({ held: false });
  expect(await control.holder.ask('show')).toMatchObject({ held: false, aborted: true });
});

test('a lock whose holder is blocked for longer than maxBlocked, or past maxHold, is granted, and the error says why', async () => {
  const maxBlocked = 2_000;
  const [endless, limited] = await Promise.all([
    stage.contest('endless', { renew: 'thread', maxBlocked }),
    stage.contest('limited', { renew: 'thread', maxHold: 2_000 }),
  ]);
  const pastMaxHold = limited.blockedFor(2.5);
  const since = performance.now();
  // The lock ends between maxBlocked + 2/3 ttl and maxBlocked + ttl + 250 ms, the time of a sign of life. The block lasts
  // some seconds longer. The lower limit leaves most of a ttl to a busy machine.
  const { granted, after } = await endless.blockedFor(1.75);
  expect(granted).toBeDefined();
  expect(granted! - since).toBeGreaterThan(maxBlocked);
  expect(after).toMatchObject({
    held: false,
    error: expect.stringContaining('blocked for longer than its maxBlocked of 2000 ms'),
  });
  expect(await endless.holder.ask('show')).toMatchObject({ held: false, aborted: true });
  expect(await pastMaxHold).toEqual({
    granted: expect.any(Number),
    after: expect.objectContaining({
      held: false,
      // The second text comes when the last renewal had no answer in time.
      error: expect.stringMatching('its maxHold of 2000 ms had passed|its validity ran out'),
    }),
  });
});
