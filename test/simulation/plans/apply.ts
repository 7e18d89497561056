import { FORGOTTEN_FOR_MS } from '../network/connection.js';
import type { Scene } from '../scene.js';
import { described, type FaultEvent, UNNOTICED_MS } from './faults.js';

/** Milliseconds after which a process has looked at its clocks: a wall clock that was set back hides no later suspend. */
const UNSEEN_MS = 1_000;

/** Milliseconds for which the clock of a node is compared with what it was (docs/safety.md). */
const COMPARED_MS = 60_000;

/** A suspend is not seen if the wall clock is set back meanwhile, or just before (docs/safety.md). */
const SET_BACK = 'the wall clock was set back, which hides a suspend';

/** Makes a fault happen, and tells the judge what it disturbs. */
export function apply(scene: Scene, event: FaultEvent): void {
  const { world, plan, judge, disturbances, servers, apps } = scene;
  const { time } = world;
  world.note(`FAULT ${described(event).replace(/^\S+ s {2}/, '')}`);
  const server = 'node' in event && event.node !== undefined ? servers[event.node] : undefined;
  const app = 'process' in event && event.process !== undefined ? apps[event.process] : undefined;
  const links = 'node' in event && 'process' in event ? scene.links(event.process, event.node) : [];
  for (const link of links) disturbances.happened(link, time);
  switch (event.kind) {
    case 'crash': {
      if (!server?.isUp) return;
      server.crash(event.down, event.lost === -1 ? Infinity : event.lost);
      disturbances.happened(server, time, event.down);
      scene.lastEnd = time + event.down;
      if (plan.guard) disturbances.guards(server, time, time + event.down + scene.longestTtl * 1.4);
      // A lone node that restarts does not vote before its guard has passed, whatever data it kept, and then keeps no queue.
      if (event.lost !== 0 || (plan.guard && plan.nodes === 1)) lostData(scene, event.node, event.down);
      return;
    }
    case 'hang':
      return server?.hang(event.duration);
    case 'slow':
      if (server) server.slowBy = event.by;
      return world.after(event.duration, () => {
        if (server) server.slowBy = 0;
      });
    case 'refuse':
      if (server) server.refusal = event.how;
      return world.after(event.duration, () => {
        if (server) server.refusal = undefined;
      });
    case 'flush':
      lostData(scene, event.node, 0);
      return server?.flush();
    case 'scriptFlush':
      return server?.forgetScripts();
    case 'promote':
      lostData(scene, event.node, 0);
      return server?.promote(event.lag);
    case 'replicaOf':
      if (!server?.isUp) return;
      lostData(scene, event.node, event.duration);
      server.follow(servers[event.of]);
      return world.after(event.duration, () => {
        if (!server.isReplica) return;
        server.follow(servers[event.of]);
        server.lead();
        lostData(scene, event.node, 0);
      });
    case 'stepNode':
      // Two nodes of three that are set forward within a minute look like a pause of the process.
      if (server) disturbances.happened(server, time, Math.max(scene.longestTtl * 1.4, COMPARED_MS));
      scene.lastEnd = Math.max(scene.lastEnd, time + Math.max(0, -event.by));
      return server?.step(event.by);
    case 'cut':
      for (const link of links) {
        for (const connection of [...link.connections]) connection.cut(event);
        if (event.bytes === 'late') world.after(event.late, () => disturbances.disturb(link, world.time));
      }
      return undefined;
    case 'forget':
      for (const link of links) {
        for (const connection of link.connections) connection.forget();
        // The release of an attempt under way does not arrive if its process ends now. The node then keeps the lease for its
        // ttl, and stores no other lock.
        disturbances.guards(link.server, time, time + scene.longestTtl * 1.4);
        // The library does not end a connection of the application's client, so it waits until TCP gives up.
        disturbances.happened(link, time, plan.passedIn ? FORGOTTEN_FOR_MS : UNNOTICED_MS);
      }
      return undefined;
    case 'block':
      for (const link of links) link.block(event.direction, event.duration);
      return undefined;
    case 'delay':
      for (const link of links) {
        link.extraDelay = event.by;
        link.loss = event.loss;
        world.after(event.duration, () => {
          link.extraDelay = 0;
          link.loss = 0;
        });
      }
      return undefined;
    case 'pause':
    case 'suspend':
    case 'freeze': {
      if (!app) return;
      const how = { pause: 'blocked', suspend: 'suspended', freeze: 'frozen' } as const;
      const isHidden = event.kind === 'suspend' && time - app.process.setBackAt < UNSEEN_MS;
      // Nothing shows a process without replies that both its clocks stood still.
      const unseen = event.kind === 'freeze' ? 'both clocks stood still' : isHidden ? SET_BACK : undefined;
      judge.jumped(app.process, unseen, event.duration);
      for (const link of app.links) disturbances.happened(link, time, event.duration);
      return app.process.pause(how[event.kind], event.duration);
    }
    case 'stall':
      if (!app || app.process.isDead || app.process.isStopped) return;
      if (event.ofThread) return app.thread?.process.blockLoop(event.duration);
      // A process whose own event loop is blocked notices nothing meanwhile.
      for (const link of app.links) disturbances.happened(link, time, event.duration);
      return app.process.blockLoop(event.duration);
    case 'step':
      if (!app) return;
      judge.jumped(app.process, event.by < 0 && app.process.isStopped ? SET_BACK : undefined);
      return app.process.step(event.by);
    case 'kill':
    case 'restart': {
      if (!app) return;
      if (event.kind === 'kill') app.kill();
      else app.close();
      scene.lastEnd = time;
      return world.after(event.again, () => {
        if (apps[event.process] === app) scene.start(event.process, app.life + 1);
      });
    }
  }
}

/**
 * A node that lost data votes again after the guard, and gets held locks again with their next renewal (S12, S26). The guard
 * may begin only when a process sees the node again, after TCP has given up a forgotten connection (S28).
 */
function lostData(scene: Scene, node: number, down: number): void {
  const { world, disturbances, servers, longestTtl } = scene;
  const server = servers[node];
  const clear = scene.links(undefined, node).map((link) => disturbances.clearSince(link));
  const seen = Math.max(world.time + down, ...clear);
  if (server) disturbances.happened(server, seen, longestTtl * 1.4);
  scene.lastEnd = world.time + down;
}
