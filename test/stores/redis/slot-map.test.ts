import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import {
  COUNT_FREE,
  findFree,
  freeSlot,
  isTaken,
  luaWidthOf,
  offsetOf,
  TAKE_SLOT,
  widthOf,
} from '../../../lib/stores/redis/scripts/slot-map.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

let server: RedisServer;
let redis: Redis;

beforeAll(async () => {
  server = await startRedis();
  redis = server.client();
});
afterAll(() => server.stop());

/**
 * Takes and frees random slots in a slot map and in a plain table; returns the first difference between the map and the
 * table, or the map if there is no difference.
 */
const COMPARE = `
math.randomseed(ARGV[1])
local permits, taken, plain = tonumber(ARGV[2]), '', {}
for step = 1, 3000 do
  local from = math.random(0, permits - 1)
  -- Mostly full in one half of the time, and mostly free in the other.
  local fills = math.random(10) > (step % 1000 < 500 and 2 or 8)
  local slot, expected, free, count = nil, from, nil, permits
  ${findFree('from')}
  while plain[expected] do
    expected = expected + 1
  end
  if slot ~= expected then
    return 'free from ' .. from .. ': ' .. slot .. ' in place of ' .. expected .. ' in ' .. taken
  end
  if (${isTaken('from')}) ~= (plain[from] == true) then
    return from .. ' in ' .. taken
  end
  for other in pairs(plain) do
    count = count - (other < permits and 1 or 0)
  end
  ${COUNT_FREE}
  if free ~= count then
    return free .. ' in place of ' .. count .. ' free in ' .. taken
  end
  if fills and slot < permits + 7 then
    ${TAKE_SLOT}
    plain[slot] = true
    local at = ${offsetOf('slot', 1)} + 1
    if #taken < at or ${luaWidthOf('slot + 1')} ~= at then
      return 'the width of ' .. slot
    end
  else
    local text = 'before' .. taken
    ${freeSlot('text', 'from', 7)}
    taken = string.sub(text, 7)
    plain[from] = nil
  end
end
return taken
`;

test.each([1, 2, 5, 6, 7, 12, 50, 1_000])(
  'a slot map knows which of %d slots are taken or free after random changes',
  async (permits) => {
    for (let seed = 1; seed <= 3; seed++)
      await expect(redis.eval(COMPARE, 0, seed, permits)).resolves.toMatch(/^[?-~]*$/);
  },
);

test('a slot map stores six slots in each character', () => {
  expect([1, 6, 7, 1_000].map(widthOf)).toEqual([1, 1, 2, 167]);
});
