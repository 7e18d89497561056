import { setTimeout as sleep } from 'node:timers/promises';
import { RedlockError, LockUnavailableError } from '../../core/errors.js';
import { quoted } from '../../core/printable.js';
import { type CurrentLeader, leaderKey } from './leader-term.js';
import type { Leaders } from './leaders.js';

/** Milliseconds between two looks for a leader elsewhere. */
const LOOK_AGAIN_MS = 1_000;

/**
 * The leaders of one name: whether this process leads, and who does otherwise. `LockService.leader` gives it, also where no
 * method has `@Leader` with that name.
 */
export class Leadership {
  /** @internal `LockService.leader` makes it. */
  constructor(
    readonly name: string,
    private readonly leaders: Leaders,
  ) {}

  /**
   * Whether this process leads now, decided by the clock, without asking the store.
   *
   * It can be over by the next statement: a write that must not come late takes the fencing token of the term.
   */
  isLeader(): boolean {
    return this.leaders.of(this.name)?.isLeader() ?? false;
  }

  /**
   * The process that leads, as a quorum of nodes says; `undefined` when nobody leads.
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
   * The leader at present, and each further one: what {@link current} says, first at once and then whenever it is another.
   * A change in this process is told at once, one elsewhere within about a second; one that ends sooner may be left out.
   * While too few nodes answer, nothing is told. It ends when the application shuts down; one that is left in
   * the middle of a wait ends within a second.
   */
  async *changes(): AsyncGenerator<CurrentLeader | undefined, void, undefined> {
    const { runtime } = this.leaders;
    let changed = new AbortController();
    const stopListening = this.leaders.onChange(() => changed.abort());
    try {
      let told: CurrentLeader | undefined | null = null;
      while (!runtime.isClosed) {
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
   * Ends the term of this process, if it has one, and campaigns no more until {@link campaign} or the next start. Resolves
   * when the method with `@Leader` has settled and another process can lead; within that method at once, after its signal
   * has aborted. Does nothing where no method has `@Leader` with this name.
   */
  async resign(): Promise<void> {
    await this.leaders.of(this.name)?.stop('resigned');
  }

  /**
   * Campaigns again after {@link resign}, or after the method with `@Leader` has returned. Does nothing while it campaigns.
   *
   * @throws RedlockError with the code `NO_LEADER` when no method of this application has `@Leader` with this name
   */
  campaign(): void {
    const campaign = this.leaders.of(this.name);
    if (!campaign) throw nobodyLeads(`\`campaign()\` for ${quoted([this.name])}`, this.leaders);
    campaign.start();
  }

  /** `null` when too few nodes say. */
  async #look(): Promise<CurrentLeader | undefined | null> {
    try {
      return await this.current();
    } catch (error) {
      if (error instanceof LockUnavailableError) return null;
      throw error;
    }
  }
}

function isSame(a: CurrentLeader | undefined, b: CurrentLeader | undefined): boolean {
  return a?.owner === b?.owner && a?.since.getTime() === b?.since.getTime();
}

/** @param what - begins the message: what names the leader */
export function nobodyLeads(what: string, { names }: Leaders): RedlockError {
  const led = names.length === 0 ? 'No name is led' : `Names that are led: ${quoted(names)}`;
  return new RedlockError(
    'NO_LEADER',
    `${what}: no method of this application has @Leader with that name, so this process never leads. ${led}. ` +
      'Put @Leader on a method of a provider, with the same name and `instance`.',
  );
}
