import type { Scene } from '../scene.js';

/** Milliseconds for which a record may stay on an undisturbed node without a holder. */
const GRACE_MS = 4_000;

const LOOK_MS = 1_000;

/** Finds records of locks that nobody holds. */
export class OrphanWatch {
  /** The time at which each record was first seen. */
  #seen = new Map<string, number>();
  readonly #told = new Set<string>();

  constructor(private readonly scene: Scene) {}

  start(): void {
    const { world, judge } = this.scene;
    world.after(LOOK_MS, () => {
      if (judge.isOver) return;
      this.#look();
      this.start();
    });
  }

  #look(): void {
    const { world, servers, everyApp, judge, disturbances } = this.scene;
    const { time } = world;
    const seen = new Map<string, number>();
    for (const server of servers) {
      if (!server.isUp || server.isHung) continue;
      for (const { key, id, owner, remaining } of server.holders()) {
        const name = `${server.name}/${key}/${id}`;
        const from = this.#seen.get(name) ?? time;
        seen.set(name, from);
        const app = everyApp.find((each) => each.name === owner);
        const holding = judge.holdings.get(id);
        if (!app || app.process.isDead || app.isClosing || this.#told.has(name)) continue;
        if (holding && holding.released === undefined) continue;
        // A node that has older data again does not know of the release.
        if (from <= server.disturbedAt + 2 * LOOK_MS) continue;
        const link = app.links.find((each) => each.server === server);
        const quiet = link ? disturbances.quietSince(link) : 0;
        const free = holding?.released === undefined ? from : holding.released + holding.keepsFor;
        // A thread that hangs while it stores a lock on a further node releases it there afterwards.
        const stalls = [...app.process.stalls, ...(app.thread?.process.stalls ?? [])];
        const stalled = Math.max(0, ...stalls.map(({ to }) => to));
        if (time - Math.max(free, from, quiet, stalled) < GRACE_MS) continue;
        this.#told.add(name);
        const history =
          holding?.released === undefined ? 'never acquired' : `released ${Math.round(time - free)} ms ago`;
        const text = `${server.name} keeps ${key} for ${id.slice(0, 6)} of ${owner}, ${history}`;
        judge.find('orphan', `${text}, for ${Math.round(remaining)} ms more`);
      }
    }
    this.#seen = seen;
  }
}
