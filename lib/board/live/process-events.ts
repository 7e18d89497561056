import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { RedlockError } from '../../core/errors.js';
import { quoted } from '../../core/printable.js';
import { LOCK_STATE_CHANNEL, type LockStateEvent } from '../../core/lock-events.js';
import { FORCE_RELEASE_CHANNEL, type ForceReleaseEvent } from '../../telemetry/force-release.js';
import { LOCK_SKIPPED_CHANNEL, type LockSkippedEvent } from '../../telemetry/lock-skipped.js';
import {
  LOCK_ACQUIRE_CHANNEL,
  LOCK_HOLD_CHANNEL,
  type LockAcquireEvent,
  type LockHoldEvent,
} from '../../telemetry/lock-telemetry.events.js';
import { TICK_RAN_CHANNEL, type TickRanEvent } from '../../telemetry/tick-ran.js';
import type { History } from './history.js';
import type { HistoryEntry, TickRow, WaiterRow } from './messages.js';

/** Shortest wait that the board shows, in milliseconds. A shorter time may be only the round trip of an acquisition. */
const SHORTEST_WAIT_MS = 20;

/** Milliseconds for which events are still recorded after the last viewer has left: the length of a timeline. */
const RECORDED_FOR_MS = 10 * 60_000;

/** Largest number of methods and jobs with `oncePerTick` that are recorded; a usual application has a few. */
const MOST_TICKS = 500;

type Held = Extract<HistoryEntry, { kind: 'held' }>;

type Handlers = readonly (readonly [channel: string, handler: (message: unknown) => void])[];

/**
 * Records the events of the locks of one module instance in this process: waits, holds, and ticks.
 *
 * The recorder subscribes to the events of locks only while somebody watches the board, and for some time after that.
 * In a process that does nothing but acquire and release locks, these events take more time than the rest of an
 * acquisition (bench/board.mjs). Ticks are rare, so they are recorded from the start.
 */
export class ProcessEvents {
  /** Acquisitions in progress, each with the time at which it began. */
  readonly #asking = new Map<LockAcquireEvent, number>();
  /** Start of each wait that ended with a lock, by keys and token. An entry stays until the hold begins. */
  readonly #askedAt = new Map<string, number>();
  readonly #held = new Map<string, Held[]>();
  readonly #ticks = new Map<string, TickRow>();
  readonly #always: Handlers;
  readonly #whileRecorded: Handlers;
  #isRecording = false;
  #restTimer: NodeJS.Timeout | undefined;

  /** @param owner - the readable name of this process, for its holders and waiters */
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
    this.#whileRecorded = [
      [
        `tracing:${LOCK_ACQUIRE_CHANNEL}:start`,
        mine<LockAcquireEvent>((event) => this.#asking.set(event, Date.now())),
      ],
      [`tracing:${LOCK_ACQUIRE_CHANNEL}:asyncEnd`, mine<LockAcquireEvent>((event) => this.#answered(event))],
      [`tracing:${LOCK_HOLD_CHANNEL}:start`, mine<LockHoldEvent>((event) => this.#began(event))],
      [`tracing:${LOCK_HOLD_CHANNEL}:asyncEnd`, mine<LockHoldEvent>((event) => this.#ended(event))],
      [FORCE_RELEASE_CHANNEL, mine<ForceReleaseEvent>((event) => this.#forced(event))],
      [LOCK_STATE_CHANNEL, (message) => this.#changed(message as LockStateEvent)],
    ];
    this.#always = [
      [LOCK_SKIPPED_CHANNEL, mine<LockSkippedEvent>((event) => this.#skipped(event))],
      [TICK_RAN_CHANNEL, mine<TickRanEvent>((event) => this.#ran(event))],
    ];
    for (const [channel, handler] of this.#always) subscribe(channel, handler);
  }

  /**
   * Starts to record events, because somebody watches the board.
   *
   * @returns `true` if the recorder did not record before, so that no events are known yet
   */
  record(): boolean {
    clearTimeout(this.#restTimer);
    if (this.#isRecording) return false;
    this.#isRecording = true;
    for (const [channel, handler] of this.#whileRecorded) subscribe(channel, handler);
    return true;
  }

  /**
   * Ends the recording after some time, because nobody watches. A user who opens the board again within that time finds
   * no gap in the timelines.
   */
  rest(): void {
    clearTimeout(this.#restTimer);
    this.#restTimer = setTimeout(() => this.#forget(), RECORDED_FOR_MS).unref();
  }

  stop(): void {
    clearTimeout(this.#restTimer);
    this.#forget();
    for (const [channel, handler] of this.#always) unsubscribe(channel, handler);
  }

  /** `true` if an event has reported that this process holds the lock with this id. */
  holds(id: string): boolean {
    return this.#held.has(id);
  }

  get ticks(): readonly TickRow[] {
    return [...this.#ticks.values()];
  }

  /** Returns the waiters in this process by key, in the order of their arrival. */
  waiters(): Map<string, WaiterRow[]> {
    const found = new Map<string, WaiterRow[]>();
    const least = Date.now() - SHORTEST_WAIT_MS;
    for (const [{ keys, mode, method }, since] of this.#asking) {
      // Acquisitions are in the order of their start, so all acquisitions after this one began later.
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

  /**
   * Ends the recording, and drops the records: without further events nothing would remove ended entries, so the
   * records would soon be wrong.
   */
  #forget(): void {
    if (!this.#isRecording) return;
    this.#isRecording = false;
    for (const [channel, handler] of this.#whileRecorded) unsubscribe(channel, handler);
    for (const known of [this.#asking, this.#askedAt, this.#held, this.history]) known.clear();
  }

  #answered(event: LockAcquireEvent): void {
    this.#asking.delete(event);
    const { keys, error, waited = 0, fencingToken } = event;
    const now = Date.now();
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
    if (this.#isRecording)
      for (const key of keys) this.history.add({ kind: 'skipped', key, who: this.owner, at, reason });
    if (reason === 'tick-ran' && tick !== undefined)
      this.#ticked(method, keys, ({ skipped }) => ({
        skipped: skipped + 1,
        lastSkip: { tick, at, ...(by !== undefined && { by }) },
      }));
  }

  #ran({ method, keys, tick }: TickRanEvent): void {
    this.#ticked(method, keys, ({ ran }) => ({ ran: ran + 1, lastRun: { tick, at: Date.now() } }));
  }

  /** @param of - the method; absent for a job that calls `LockService.oncePerTick` */
  #ticked(
    of: string | undefined,
    [key = '']: readonly string[],
    change: (row: TickRow) => Partial<TickRow>,
  ): void {
    const method = of ?? `oncePerTick(${quoted([key])})`;
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
