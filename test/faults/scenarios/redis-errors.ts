import { expect } from '@jest/globals';
import type { Redis } from 'ioredis';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { STEPS_PER_SECOND } from '../../../lib/core/fencing-token.js';
import { until } from '../../support/until.js';
import type { Stage } from '../stage.js';
import { countOf, refusals, repeat, type Scenario, toTheEnd } from '../scenario.js';

function lookersOf({ servers }: Stage): Redis[] {
  return servers.map((server) => server.client());
}

/**
 * Deletes all data of the node if its clock has passed the token of the lock `k`; otherwise deletes nothing. New tokens
 * start at the clock, so they are then larger than every earlier token. Without this condition, a new token could be
 * lower than the token of a grant that is less than 50 ms old. docs/safety.md excludes this case.
 */
const FORGET = `
local record = redis.call('GET', 'lock:{k}')
local time = redis.call('TIME')
local clock = (time[1] + time[2] / 1000000) * ${STEPS_PER_SECOND}
if record and tonumber(string.sub(record, 3, 18)) >= clock then return 0 end
redis.call('FLUSHALL')
return 1`;

/** Waits until one more acquisition is refused with this message. */
async function oneMoreRefusal(stage: Stage, saying: string): Promise<void> {
  const before = refusals(await stage.events(), saying);
  await until(async () => refusals(await stage.events(), saying) > before, 120_000);
}

export const redisErrors: readonly Scenario[] = [
  {
    name: 'FLUSHALL of each node in turn, restart guard on (S12)',
    onlyLong: true,
    stage: { nodes: 5 },
    clients: 4,
    client: { ttl: 1_000, module: { restartGuard: 1_100 } },
    seconds: [4, 10],
    async faults(play) {
      const lookers = lookersOf(play.stage);
      await repeat(play, 700, (turn) => lookers[turn % 5]!.flushall());
    },
  },
  {
    name: 'FLUSHALL of all nodes, restart guard off: tokens still increase',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 4,
    client: { leastHold: 400, hold: 450 },
    seconds: [4, 10],
    overlapsBecause: 'all nodes lose their data',
    async faults(play) {
      const lookers = lookersOf(play.stage);
      await repeat(play, 150, () => Promise.all(lookers.map((node) => node.eval(FORGET, 0))));
    },
  },
  {
    name: 'SCRIPT FLUSH in a loop (S15)',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 4,
    seconds: [2, 10],
    async faults(play) {
      const lookers = lookersOf(play.stage);
      await repeat(play, 1, () => Promise.all(lookers.map((node) => node.script('FLUSH'))));
    },
    enough: (events) => countOf(events, 'return') > 20,
  },
  {
    name: 'OOM on a majority: held locks survive (S9)',
    essential: true,
    stage: { nodes: 3 },
    clients: 3,
    // The scenario expects no lost lock, so the ttl and the time limit leave room for a stall of two seconds.
    client: {
      ttl: 5_000,
      leastHold: 5_300,
      hold: 5_600,
      retry: { timeout: 400 },
      module: { nodeTimeout: 500 },
    },
    seconds: [2, 10],
    async faults(play) {
      const lookers = lookersOf(play.stage).slice(1);
      await repeat(play, 500, async () => {
        await Promise.all(lookers.map((node) => node.config('SET', 'maxmemory', '1')));
        // The fault lasts longer than the ttl, and until another client has asked for the lock.
        await Promise.all([sleep(5_200), oneMoreRefusal(play.stage, 'OOM')]);
        await Promise.all(lookers.map((node) => node.config('SET', 'maxmemory', '0')));
      });
    },
    check: ({ lost }) => expect(lost).toBe(0),
  },
  {
    name: 'MISCONF on a majority: the nodes cannot save their data',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 3,
    client: { ttl: 1_000, leastHold: 20, hold: 50, retry: { timeout: 400 } },
    seconds: [2, 10],
    async faults(play) {
      const nodes = play.stage.servers.slice(1);
      await repeat(play, 500, async () => {
        await Promise.all(
          nodes.map(async (server) => {
            const node = server.client();
            // A directory has the name of the dump, so Redis cannot rename its dump to it, not even as root.
            const obstacle = join(server.workingDirectory, 'dump.rdb');
            await mkdir(obstacle, { recursive: true });
            await node.config('SET', 'save', '3600 1');
            await node.bgsave();
            await until(async () => (await node.info('persistence')).includes('bgsave_status:err'));
          }),
        );
        // These nodes also refuse a release. Other clients therefore get the answer that the lock is held. They get
        // MISCONF only after the ttl of that lock.
        await oneMoreRefusal(play.stage, 'MISCONF');
        await Promise.all(
          nodes.map(async (server) => {
            await rm(join(server.workingDirectory, 'dump.rdb'), { recursive: true });
            await server.client().config('SET', 'save', '');
          }),
        );
      });
    },
  },
  {
    name: 'READONLY: a node is made a replica, and a master again',
    stage: { nodes: 3 },
    clients: 3,
    seconds: [2, 10],
    async faults(play) {
      const lookers = lookersOf(play.stage);
      await repeat(play, 500, async (turn) => {
        const node = lookers[turn % 3]!;
        await node.replicaof('127.0.0.1', 1);
        await sleep(500);
        await node.call('REPLICAOF', 'NO', 'ONE');
      });
      // While the third node is paused, clients can acquire the lock only if both other nodes vote again.
      play.stage.servers[2]!.pause();
      await play.stage.acquired(countOf(await play.stage.events(), 'return') + 3);
      play.stage.servers[2]!.resume();
    },
  },
  {
    name: 'a user without INFO and Pub/Sub, restart guard on',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 0,
    startsLocked: true,
    seconds: [2, 10],
    async faults({ stage }) {
      const rights = ['~*', 'resetchannels', '+@all', '-info', '-config', '-@pubsub'];
      await Promise.all(
        lookersOf(stage).map((node) => node.call('ACL', 'SETUSER', 'app', 'on', '>secret', ...rights)),
      );
      const nodes = stage.servers.map(({ host, port }) => `redis://app:secret@${host}:${port}`);
      await stage.startClients(3, { ttl: 1_000, module: { nodes, restartGuard: 1_100 } });
      stage.go();
      await stage.acquired(10);
    },
  },
  {
    name: 'a key of the wrong type on one node (S19)',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 3,
    seconds: [2, 10],
    async before({ servers }) {
      await servers[0]!.client().rpush('lock:{k}', 'not a lock');
    },
    enough: (events) => countOf(events, 'return') > 10,
    async faults(play) {
      await toTheEnd(play);
      await play.stage.servers[0]!.client().del('lock:{k}');
    },
  },
  {
    name: 'a key of the wrong type on a majority: acquire fails with WRONGTYPE (S19)',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 3,
    client: { retry: { timeout: 1_000 } },
    startsLocked: true,
    seconds: [1, 5],
    async before({ servers }) {
      await Promise.all(servers.slice(1).map((server) => server.client().rpush('lock:{k}', 'not a lock')));
    },
    enough: (events) => refusals(events, 'WRONGTYPE') > 3,
    async faults(play) {
      await toTheEnd(play);
      // No client gets the lock. A client reports the holder on the first node only if the other nodes miss their time
      // limit.
      const events = await play.stage.events();
      expect(countOf(events, 'return')).toBe(0);
      expect(refusals(events, 'LOCK_HELD')).toBeLessThan(refusals(events, 'WRONGTYPE'));
      // The first node's record stays: a client may already hold the lock with the first node and a repaired node.
      await Promise.all(play.stage.servers.slice(1).map((server) => server.client().del('lock:{k}')));
      await play.stage.acquired(1);
    },
  },
];
