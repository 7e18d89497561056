import { setTimeout as sleep } from 'node:timers/promises';
import { RedlockError, LockUnavailableError } from '../../core/errors.js';
import { quoted } from '../../core/printable.js';
import { hideFields, showAs } from '../../core/shown-as.js';
import { type CurrentLeader, leaderKey } from './leader-term.js';
import type { Leaders } from './leaders.js';

/**
 * Milliseconds between two reads of the leader in {@link Leadership.changes}, while nothing changes in this process.
 */
const LOOK_AGAIN_MS = 1_000;

/**
 * The leader of one name: reports whether this process leads, and otherwise which process leads. `LockService.leader`
 * returns the object even if no method of this application has `@Leader` with the name.
 */
export class Leadership {
  /** @internal `LockService.leader` makes the object. */
  constructor(
    readonly name: string,
    private readonly leaders: Leaders,
  ) {
    hideFields(this, 'leaders');
  }

  /**
   * `true` if this process leads now. The answer comes from the clock, without a request to the store.
   *
   * The term can end before the next statement: a write that must not happen after the term needs the term's fencing
   * token.
   */
  isLeader(): boolean {
    return this.leaders.of(this.name)?.isLeader() ?? false;
  }

  /**
   * The present leader, according to a quorum of nodes; `undefined` when there is none.
   *
   * @throws LockUnavailableError when fewer than a quorum of nodes answered
   */
  async current(): Promise<CurrentLeader | undefined> {
    const { runtime } = this.leaders;
    await runtime.open();
    const { held, owner, since, fencingToken } = await runtime.inspection.inspect(leaderKey(this.name));
    if (!held || owner === undefined || since === undefined) return undefined;
    return { owner, since, fencingToken };
  }

  /**
   * Iterates over the leaders: first the present leader, then each later leader. The values are as {@link current}
   * returns them. A change in this process is reported immediately, a change in another process within about a second.
   * A leader whose term is shorter than a second may be left out. While too few nodes answer, there are no reports. The
   * iteration ends when the application shuts down. After a `break` during a wait, the iteration ends within a second.
   */
  async *changes(): AsyncGenerator<CurrentLeader | undefined, void, undefined> {
    const { runtime } = this.leaders;
    let changed = new AbortController();
    const stopListening = this.leaders.onChange(() => changed.abort());
    try {
      let told: CurrentLeader | undefined | null = null;
      while (!runtime.closing.aborted) {
        changed = new AbortController();
        const { signal } = changed;
        const leader = await this.#look();
        if (leader !== null && (told === null || !isSame(leader, told))) yield (told = leader);
        else await sleep(LOOK_AGAIN_MS, undefined, { signal }).catch(() => undefined);
      }
    } finally {
      stopListening();
    }
  }

  /**
   * Ends the term of this process, if there is one, and stops the campaign until {@link campaign} or the next start.
   * Resolves when the method with `@Leader` has settled and another process can lead. A call from that method itself
   * resolves immediately, after the signal of the method has aborted. Does nothing if no method has `@Leader` with this
   * name.
   */
  async resign(): Promise<void> {
    await this.leaders.of(this.name)?.stop('resigned');
  }

  /**
   * Campaigns again after {@link resign}, or after the method with `@Leader` has returned. Does nothing during a
   * campaign.
   *
   * @throws RedlockError with the code `NO_LEADER` when no method of this application has `@Leader` with this name
   */
  campaign(): void {
    const campaign = this.leaders.of(this.name);
    if (!campaign) throw nobodyLeads(`\`campaign()\` for ${quoted([this.name])}`, this.leaders);
    campaign.start();
  }

  /** Asks for the leader; `null` when too few nodes answer. */
  async #look(): Promise<CurrentLeader | undefined | null> {
    try {
      return await this.current();
    } catch (error) {
      if (error instanceof LockUnavailableError) return null;
      throw error;
    }
  }
}

showAs(Leadership, 'Leadership', (leadership) => ({
  name: leadership.name,
  isLeader: leadership.isLeader(),
}));

function isSame(a: CurrentLeader | undefined, b: CurrentLeader | undefined): boolean {
  return a?.owner === b?.owner && a?.since.getTime() === b?.since.getTime();
}

/** @param what - the start of the message: the code that uses the name */
export function nobodyLeads(what: string, { names }: Leaders): RedlockError {
  const led =
    names.length === 0
      ? 'The application has no @Leader at all'
      : `The names with @Leader are ${quoted(names)}`;
  return new RedlockError(
    'NO_LEADER',
    `${what}: no method of this application has @Leader with that name, so this process never leads. ${led}. ` +
      'Put @Leader on a method of a provider, with the same name and `instance`.',
  );
}
