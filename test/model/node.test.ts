import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomInt } from 'node:crypto';
import { openClient } from '../../lib/stores/redis/connection/connection.js';
import { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { Lease } from '../../lib/core/lease.js';
import { counterAt } from '../../lib/core/fencing-token.js';
import type { LockStore } from '../../lib/core/ports.js';
import { newFleet } from '../support/core.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { acquireOn, type NodeState, raiseOn } from './node.js';

// The model check proves a protocol whose nodes behave as `node.ts` says. Here the real ones are given long random
// sequences of the same messages, late, repeated and crossed ones among them, and must answer the same all the way.

const CLAIMS = 4;
const MESSAGES = 400;
/** A day ahead, so that the counter never jumps with the clock while the test runs. */
const AHEAD = counterAt(Date.now() + 86_400_000);

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

async function redisNode(key: string): Promise<LockStore> {
  const node = new RedisStore(openClient(server.url), true, newFleet());
  await node.connect();
  await server.client().set(`lock:{${key}}:f`, String(AHEAD));
  return node;
}

/** A message to a node, and what came back: the counter of a grant, the success of a raise. */
interface Exchange {
  readonly message: string;
  readonly reply: number | boolean | undefined;
}

describe.each([
  ['Redis, by its Lua scripts', redisNode],
  ['memory', () => Promise.resolve(new MemoryStore())],
])('a node in %s', (_kind, open) => {
  test.each([1, 2, 3, 4, 5])(
    'answers %#: what the model does, whatever the order of the messages',
    async (round) => {
      const key = `model-${round}`;
      const node = await open(key);
      const claims = Array.from({ length: CLAIMS }, () => new Lease([key], 'model', 60_000));
      const said: Exchange[] = [];
      const expected: Exchange[] = [];
      let state: NodeState = { owner: undefined, counter: AHEAD };

      // A node that starts without a counter takes what it is given: see the first grant.
      const first = await node.acquire(claims[0]!, { limit: 5_000, guard: 0, seed: AHEAD, floor: 'coarse' });
      if (!first.granted) throw new Error('the first claim was refused');
      state = { owner: 0, counter: first.counter };

      for (let at = 0; at < MESSAGES; at++) {
        const id = randomInt(CLAIMS);
        const claim = claims[id]!;
        const kind = randomInt(5);
        if (kind < 2) {
          const step = acquireOn(state, id, 0);
          const reply = await node.acquire(claim, { limit: 5_000, guard: 0, seed: AHEAD, floor: 'coarse' });
          expected.push({ message: `${at}: acquire ${id}`, reply: step.counter });
          said.push({ message: `${at}: acquire ${id}`, reply: reply.granted ? reply.counter : undefined });
          state = step.node;
        } else if (kind < 4) {
          const token = state.counter + randomInt(-2, 4);
          const step = raiseOn(state, id, token);
          expected.push({ message: `${at}: raise ${id} to ${token}`, reply: step.counter !== undefined });
          said.push({ message: `${at}: raise ${id} to ${token}`, reply: await node.raise(claim, token) });
          state = step.node;
        } else {
          await node.release(claim);
          if (state.owner === id) state = { ...state, owner: undefined };
        }
      }
      await node.close();
      expect(said).toEqual(expected);
    },
  );
});
