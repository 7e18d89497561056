import { expect } from '@jest/globals';
import type { Redis } from 'ioredis';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../../support/until.js';
import { machineTime } from '../events.js';
import type { Stage } from '../stage.js';
import { countOf, refusals, repeat, type Scenario, toTheEnd } from '../scenario.js';

function lookersOf({ servers }: Stage): Redis[] {
  return servers.map((server) => server.client());
}

/** Waits until one more acquisition is refused with this message. */
async function oneMoreRefusal(stage: Stage, saying: string): Promise<void> {
  const before = refusals(await stage.events(), saying);
  await until(async () => refusals(await stage.events(), saying) > before, 60_000);
}

export const redisErrors: readonly Scenario[] = [
  {
    name: 'FLUSHALL of one node after the other, guard on (S12)',
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
    name: 'FLUSHALL of all nodes, guard off: tokens still increase',
    stage: { nodes: 3 },
    clients: 4,
    client: { leastHold: 400, hold: 450 },
    seconds: [4, 10],
    overlapsBecause: 'all is forgotten',
    async faults(play) {
      const lookers = lookersOf(play.stage);
      await repeat(play, 150, async () => {
        // New counters start 50 ms ahead of the clock at most. What was granted just before is not promised to be less.
        await until(async () => {
          const grants = (await play.stage.events()).filter(({ event }) => event === 'return');
          const since = machineTime() - Math.max(...grants.map(({ at }) => at));
          return since > 60 && since < 200;
        });
        await Promise.all(lookers.map((node) => node.flushall()));
      });
    },
  },
  {
    name: 'SCRIPT FLUSH in a loop (S15)',
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
    stage: { nodes: 3 },
    clients: 3,
    // Room for a machine that is too busy for one renewal or two: none of these locks may be lost.
    client: { ttl: 3_000, leastHold: 3_300, hold: 3_600, retry: { timeout: 400 } },
    seconds: [2, 10],
    async faults(play) {
      const lookers = lookersOf(play.stage).slice(1);
      await repeat(play, 500, async () => {
        await Promise.all(lookers.map((node) => node.config('SET', 'maxmemory', '1')));
        // Longer than the ttl, and until somebody has asked for the lock meanwhile.
        await Promise.all([sleep(3_200), oneMoreRefusal(play.stage, 'OOM')]);
        await Promise.all(lookers.map((node) => node.config('SET', 'maxmemory', '0')));
      });
    },
    check: ({ lost }) => expect(lost).toBe(0),
  },
  {
    name: 'MISCONF on a majority: the disk is full',
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
            // A directory where the dump should go: renaming the dump to it fails, also for root.
            const obstacle = join(server.workingDirectory, 'dump.rdb');
            await mkdir(obstacle, { recursive: true });
            await node.config('SET', 'save', '3600 1');
            await node.bgsave();
            await until(async () => (await node.info('persistence')).includes('bgsave_status:err'));
          }),
        );
        // A lock cannot be released either. Another client can request it only after its ttl has passed.
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
      // It votes again: the lock can be had with it and one of the others.
      play.stage.servers[2]!.pause();
      await play.stage.acquired(countOf(await play.stage.events(), 'return') + 3);
      play.stage.servers[2]!.resume();
    },
  },
  {
    name: 'a user without INFO and channels, guard on',
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
    name: 'a key of the wrong type on a majority is a loud error (S19)',
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
      // No client gets the lock. A client hears of the holder on the third node only if it has no time for the broken nodes.
      const events = await play.stage.events();
      expect(countOf(events, 'return')).toBe(0);
      expect(refusals(events, 'LOCK_HELD')).toBeLessThan(refusals(events, 'WRONGTYPE'));
      // Not the key of the first node: by then somebody may hold the lock with that node and a mended one.
      await Promise.all(play.stage.servers.slice(1).map((server) => server.client().del('lock:{k}')));
      await play.stage.acquired(1);
    },
  },
];
