import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { RedlockError } from '../core/errors.js';
import { LOCK_STATE_CHANNEL, type LockStateEvent } from '../core/lock-events.js';
import { FORCE_RELEASE_CHANNEL, type ForceReleaseEvent } from '../telemetry/force-release.js';
import { LOCK_SKIPPED_CHANNEL, type LockSkippedEvent } from '../telemetry/lock-skipped.js';
import {
  LOCK_ACQUIRE_CHANNEL,
  LOCK_HOLD_CHANNEL,
  type LockAcquireEvent,
  type LockHoldEvent,
} from '../telemetry/lock-telemetry.events.js';
import type { History } from './history.js';
import type { HistoryEntry, TickRow, WaiterRow } from './messages.js';

/** A wait that is shorter is not worth showing, in milliseconds: each acquisition takes a round trip. */
const SHORTEST_WAIT_MS = 20;

/** So many methods with `oncePerTick`; an application has a few. */
const MOST_TICKS = 500;

type Held = Extract<HistoryEntry, { kind: 'held' }>;

/** Notes what the locks of one module instance do in this process: who waits here, what has happened, which ticks ran. */
export class ProcessEvents {
  /** Acquisitions that are under way, and when they began. */
  readonly #asking = new Map<LockAcquireEvent, number>();
  /** When those were asked for that had to wait, by key and token, until their holds begin. */
  readonly #askedAt = new Map<string, number>();
  readonly #held = new Map<string, Held[]>();
  readonly #ticks = new Map<string, TickRow>();
  readonly #handlers: readonly (readonly [channel: string, handler: (message: unknown) => void])[];

  /** @param owner - what this process is called among the holders */
  constructor(
    private readonly owner: string,
    private readonly instance: string | undefined,
    private readonly history: History,
  ) {
    const mine =
      <Event extends { readonly instance?: string }>(handle: (event: Event) => void) =>
      (message: unknown): void => {
        const event = message as Event;
        if (event.instance === this.instance) handle(event);
      };
    this.#handlers = [
      [
        `tracing:${LOCK_ACQUIRE_CHANNEL}:start`,
        mine<LockAcquireEvent>((event) => this.#asking.set(event, Date.now())),
      ],
      [`tracing:${LOCK_ACQUIRE_CHANNEL}:asyncEnd`, mine<LockAcquireEvent>((event) => this.#answered(event))],
      [`tracing:${LOCK_HOLD_CHANNEL}:start`, mine<LockHoldEvent>((event) => this.#began(event))],
      [`tracing:${LOCK_HOLD_CHANNEL}:asyncEnd`, mine<LockHoldEvent>((event) => this.#ended(event))],
      [LOCK_SKIPPED_CHANNEL, mine<LockSkippedEvent>((event) => this.#skipped(event))],
      [FORCE_RELEASE_CHANNEL, mine<ForceReleaseEvent>((event) => this.#forced(event))],
      [LOCK_STATE_CHANNEL, (message) => this.#changed(message as LockStateEvent)],
    ];
    for (const [channel, handler] of this.#handlers) subscribe(channel, handler);
  }

  stop(): void {
    for (const [channel, handler] of this.#handlers) unsubscribe(channel, handler);
  }

  /** Whether this process holds the lease. */
  holds(id: string): boolean {
    return this.#held.has(id);
  }

  get ticks(): readonly TickRow[] {
    return [...this.#ticks.values()];
  }

  /** Who waits in this process, by key, first come first. */
  waiters(): Map<string, WaiterRow[]> {
    const found = new Map<string, WaiterRow[]>();
    const least = Date.now() - SHORTEST_WAIT_MS;
    for (const [{ keys, mode, method }, since] of this.#asking) {
      // In the order in which they began.
      if (since > least) break;
      const row: WaiterRow = { owner: this.owner, since, mode, ...(method && { method }), own: true };
      for (const key of keys) {
        const others = found.get(key);
        if (others) others.push(row);
        else found.set(key, [row]);
      }
    }
    return found;
  }

  #answered(event: LockAcquireEvent): void {
    this.#asking.delete(event);
    const { keys, error, waited = 0, fencingToken, tick, method } = event;
    const now = Date.now();
    if (tick !== undefined && method !== undefined && !error)
      this.#ticked(method, keys, ({ ran }) => ({ ran: ran + 1, lastRun: { tick, at: now } }));
    if (waited < SHORTEST_WAIT_MS) return;
    const from = now - waited;
    if (!error) this.#askedAt.set(nameOf(keys, fencingToken), from);
    else
      for (const key of keys)
        this.history.add({ kind: 'waited', key, who: this.owner, from, to: now, outcome: outcomeOf(error) });
  }

  #began({ keys, id, fencingToken, slots }: LockHoldEvent): void {
    const name = this.#askedAt.size === 0 ? '' : nameOf(keys, fencingToken);
    const asked = this.#askedAt.get(name);
    if (asked !== undefined) this.#askedAt.delete(name);
    const entries = keys.map((key, index) => {
      const slot = slots?.[index];
      return this.history.add<Held>({
        kind: 'held',
        key,
        who: this.owner,
        ...(asked !== undefined && { asked }),
        from: Date.now(),
        token: fencingToken,
        ...(slot !== undefined && { slot }),
        own: true,
      });
    });
    this.#held.set(id, entries);
  }

  #ended({ id, error }: LockHoldEvent): void {
    for (const entry of this.#held.get(id) ?? []) {
      entry.to = Date.now();
      entry.end = error ? 'lost' : 'released';
    }
    this.#held.delete(id);
  }

  #skipped({ keys, reason, method, tick, owner: by }: LockSkippedEvent): void {
    const at = Date.now();
    for (const key of keys) this.history.add({ kind: 'skipped', key, who: this.owner, at, reason });
    if (reason === 'tick-ran' && tick !== undefined)
      this.#ticked(method, keys, ({ skipped }) => ({
        skipped: skipped + 1,
        lastSkip: { tick, at, ...(by !== undefined && { by }) },
      }));
  }

  #ticked(method: string, [key = '']: readonly string[], change: (row: TickRow) => Partial<TickRow>): void {
    const row = this.#ticks.get(method) ?? { method, key, ran: 0, skipped: 0 };
    if (!this.#ticks.has(method) && this.#ticks.size >= MOST_TICKS) return;
    this.#ticks.set(method, { ...row, ...change(row) });
  }

  #forced({ keys, actor, released }: ForceReleaseEvent): void {
    if (!released) return;
    const who = actor ?? this.owner;
    for (const key of keys) this.history.add({ kind: 'forced', key, who, at: Date.now() });
  }

  #changed({ id, keys, state }: LockStateEvent): void {
    if (state !== 'unconfirmed' || !this.#held.has(id)) return;
    for (const key of keys) this.history.add({ kind: 'unconfirmed', key, who: this.owner, at: Date.now() });
  }
}

function nameOf(keys: readonly string[], token: number | undefined): string {
  return `${token} ${keys.join('\0')}`;
}

function outcomeOf(error: unknown): 'held' | 'unavailable' | 'aborted' {
  if (!(error instanceof RedlockError)) return 'aborted';
  return error.code === 'LOCK_HELD' ? 'held' : 'unavailable';
}
