import type { Link } from '../network/link.js';
import type { Server } from '../node/server.js';

/** Milliseconds after a disturbance until the library answers as before: it connects again, and checks the node. */
const RECOVERY_MS = 5_000;

/** Knows which nodes answer which processes at present, and since when. */
export class Disturbances {
  /** The end of the last disturbance of each link and each node, recovery included. */
  readonly #until = new Map<Link | Server, number>();

  /** The last time from which each node may store no new locks, such as its restart guard, and its end. */
  readonly #guards = new Map<Server, { readonly from: number; readonly to: number }>();

  /** A node may store no new lock for some time, and a held one only if it has it. */
  guards(server: Server, from: number, to: number): void {
    const before = this.#guards.get(server);
    const goesOn = before !== undefined && before.to >= from;
    this.#guards.set(server, goesOn ? { from: before.from, to: Math.max(before.to, to) } : { from, to });
  }

  disturb(what: Link | Server, until: number): void {
    this.#until.set(what, Math.max(this.#until.get(what) ?? 0, until));
  }

  /** Looks for disturbances that last. */
  look(links: readonly Link[], time: number): void {
    for (const link of links) {
      const { server } = link;
      if (!server.answers || server.slowBy > 0) this.disturb(server, time + RECOVERY_MS);
      if (!link.isClear) this.disturb(link, time + RECOVERY_MS);
    }
  }

  /** A short disturbance happens now. */
  happened(what: Link | Server, time: number, lasts = 0): void {
    this.disturb(what, time + lasts + RECOVERY_MS);
  }

  /** The time since which nothing disturbs the link and its server. */
  quietSince(link: Link): number {
    return Math.max(this.clearSince(link), this.#until.get(link.server) ?? 0);
  }

  /** The time since which nothing disturbs the link, whatever disturbs its server. */
  clearSince(link: Link): number {
    return this.#until.get(link) ?? 0;
  }

  /** `true` if a majority of the nodes answers a process, which has these links, about a lock that it has held since then. */
  majorityAnswers(links: readonly Link[], time: number, since: number): boolean {
    const answering = links.filter((link) => {
      const guard = this.#guards.get(link.server);
      const lacksLock = guard !== undefined && guard.from <= since && since < guard.to && time < guard.to;
      return !lacksLock && this.quietSince(link) <= time;
    });
    return answering.length > links.length / 2;
  }
}
