import TinyQueue from 'tinyqueue';
import { EndlessError, type Host, type HostTimer, type Stage } from './host.js';
import type { Random } from './random.js';
import { EPOCH, type World } from './world.js';

/** Milliseconds of one turn of the event loop. */
const TURN_MS = 0.02;

/** Longest delay of `setTimeout`; a longer one counts as 1 ms. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

class Timer implements HostTimer {
  isLive = true;
  isRefed = true;

  constructor(
    /** The time at which the timer fires, by the monotonic clock. */
    readonly due: number,
    readonly order: number,
    readonly callback: (...args: unknown[]) => void,
    readonly args: readonly unknown[],
    /** `true` for a timer of the workload, which is not a timer of the library. */
    readonly isOfWork: boolean,
  ) {}

  ref(): this {
    this.isRefed = true;
    return this;
  }

  unref(): this {
    this.isRefed = false;
    return this;
  }

  hasRef(): boolean {
    return this.isRefed;
  }
}

/** A time during which the process did not run. */
export interface Stall {
  readonly from: number;
  readonly to: number;
}

/** The clocks of a process: how fast they run, and how far the wall clock is ahead of true time. */
export interface Clocks {
  readonly rate: number;
  readonly ahead: number;
}

/** The kinds of pauses, by the clocks that go on meanwhile. */
export type Pause = 'blocked' | 'suspended' | 'frozen';

/** A simulated process: its clocks, its timers, and its event loop, which runs as Node's does. */
export class SimulatedProcess implements Host {
  readonly random: Random;
  readonly stalls: Stall[] = [];
  /** The times at which the wall clock was last set back, and set forward. */
  setBackAt = -Infinity;
  setForwardAt = -Infinity;
  isDead = false;
  /** Errors that nothing handled. */
  readonly errors: unknown[] = [];
  #wallAhead: number;
  readonly #monotonicAtStart: number;
  readonly #pauses: Random;
  readonly #threads: SimulatedProcess[] = [];
  /** `true` if the next turn begins with the input: the pause has fallen into the wait for it. */
  #inputFirst = false;
  #pausedUntil = -1;
  /** The clocks that stand still at present, and since when. */
  #frozen: { readonly since: number; readonly wall: boolean } | undefined;
  #monotonicLost = 0;
  #wallLost = 0;
  #timers = new TinyQueue<Timer>([], (a, b) => a.due - b.due || a.order - b.order);
  #inbox: (() => void)[] = [];
  #immediates: Timer[] = [];
  #wakesAt = Infinity;

  constructor(
    readonly world: World,
    private readonly stage: Stage,
    readonly name: string,
    private readonly clocks: Clocks,
    /** The process of which this is a thread. */
    private readonly main?: SimulatedProcess,
  ) {
    this.random = world.random(`process:${name}`);
    this.#pauses = world.random(`pauses:${name}`);
    this.#wallAhead = clocks.ahead;
    this.#monotonicAtStart = this.random.between(1_000, 1_000_000) - world.time * clocks.rate;
  }

  /** Starts a thread of the process: an event loop of its own, with the same clocks. */
  startThread(): SimulatedProcess {
    const thread = new SimulatedProcess(this.world, this.stage, `${this.name}/thread`, this.clocks, this);
    this.#threads.push(thread);
    return thread;
  }

  monotonic(): number {
    if (this.main) return this.main.monotonic();
    const time = this.#frozen?.since ?? this.world.time;
    return (time - this.#monotonicLost) * this.clocks.rate + this.#monotonicAtStart;
  }

  wall(): number {
    if (this.main) return this.main.wall();
    const time = this.#frozen?.wall ? this.#frozen.since : this.world.time;
    return EPOCH + (time - this.#wallLost) * this.clocks.rate + this.#wallAhead;
  }

  setTimeout(callback: (...args: unknown[]) => void, delay: number, args: readonly unknown[]): HostTimer {
    return this.#setTimer(callback, delay, args, false);
  }

  #setTimer(
    callback: (...args: unknown[]) => void,
    delay: number,
    args: readonly unknown[],
    isOfWork: boolean,
  ): Timer {
    const whole = delay >= 1 && delay <= LONGEST_TIMER_MS ? Math.trunc(delay) : 1;
    const due = Math.floor(this.monotonic()) + whole;
    const timer = new Timer(due, this.world.order(), callback, args, isOfWork);
    this.#timers.push(timer);
    this.#wakeForTimer();
    return timer;
  }

  setImmediate(callback: (...args: unknown[]) => void, args: readonly unknown[]): HostTimer {
    const timer = new Timer(0, 0, callback, args, false);
    this.#immediates.push(timer);
    this.#wake(this.world.time + TURN_MS);
    return timer;
  }

  /** Resolves after a time on the monotonic clock of the process; for the workload. */
  sleep(delay: number): Promise<void> {
    return new Promise((resolve) => this.#setTimer(() => resolve(), delay, [], true));
  }

  /** Plans work of the workload. */
  later(delay: number, work: () => void): void {
    this.#setTimer(work, delay, [], true);
  }

  /** Runs `work` in the event loop, as Node runs the reaction to input. */
  post(work: () => void): void {
    if (this.isDead) return;
    this.#inbox.push(work);
    this.#wake(this.world.time);
  }

  /** Sets the wall clock. */
  step(by: number): void {
    this.#wallAhead += by;
    if (by < 0) this.setBackAt = this.world.time;
    else this.setForwardAt = this.world.time;
  }

  /** `true` while the process is suspended, or frozen. */
  get isStopped(): boolean {
    return this.#frozen !== undefined;
  }

  /**
   * Stops the process for a while. `'blocked'`: the clocks go on, as after a SIGSTOP. `'suspended'`: the monotonic clock
   * stops, as in a machine that sleeps. `'frozen'`: both clocks stop, as in a virtual machine that is paused. Its threads
   * stop, too.
   */
  pause(how: Pause, duration: number): void {
    const { time } = this.world;
    if (this.#frozen) return;
    for (const thread of this.#threads) thread.#stop(how, duration);
    this.#inputFirst = this.#pauses.chance(0.5);
    this.stalls.push({ from: time, to: time + duration });
    this.#pausedUntil = Math.max(this.#pausedUntil, time + duration);
    if (how === 'blocked') return this.#wake(this.#pausedUntil);
    this.#frozen = { since: time, wall: how === 'frozen' };
    this.world.after(duration, () => {
      this.#frozen = undefined;
      this.#monotonicLost += duration;
      if (how === 'frozen') this.#wallLost += duration;
      this.#wakesAt = Infinity;
      this.#wake(this.#pausedUntil);
    });
    return undefined;
  }

  /** Stops a thread together with its process. */
  #stop(how: Pause, duration: number): void {
    this.blockLoop(duration);
    if (how !== 'blocked')
      this.world.after(duration, () => {
        // The clocks stood still, so its timers are due later.
        this.#wakesAt = Infinity;
        this.#wake(this.#pausedUntil);
      });
  }

  /** Blocks the event loop for a while, as a computation without an `await` does. Its other threads run. */
  blockLoop(duration: number): void {
    const { time } = this.world;
    this.#inputFirst = this.#pauses.chance(0.5);
    this.stalls.push({ from: time, to: time + duration });
    this.#pausedUntil = Math.max(this.#pausedUntil, time + duration);
    this.#wake(this.#pausedUntil);
  }

  kill(): void {
    for (const thread of this.#threads) thread.kill();
    this.isDead = true;
    this.#timers = new TinyQueue<Timer>();
    this.#inbox = [];
    this.#immediates = [];
  }

  get isRunning(): boolean {
    return !this.isDead && this.world.time >= this.#pausedUntil;
  }

  /** Milliseconds since `from` during which the process did not run. */
  stalledSince(from: number): number {
    let sum = 0;
    for (const stall of this.stalls)
      sum += Math.max(0, Math.min(stall.to, this.world.time) - Math.max(stall.from, from));
    return sum;
  }

  /** The timers of the library that have not fired. */
  get timersLeft(): readonly HostTimer[] {
    return this.#timers.data.filter(({ isLive, isOfWork }) => isLive && !isOfWork);
  }

  #wake(at: number): void {
    if (at >= this.#wakesAt) return;
    this.#wakesAt = at;
    this.world.at(at, () => {
      if (this.#wakesAt !== at) return;
      this.#wakesAt = Infinity;
      this.#turn();
    });
  }

  #wakeForTimer(): void {
    if ((this.main ?? this).#frozen) return;
    let first = this.#timers.peek();
    while (first && !first.isLive) {
      this.#timers.pop();
      first = this.#timers.peek();
    }
    if (!first) return;
    const { main = this } = this;
    const due = (first.due - main.#monotonicAtStart) / this.clocks.rate + main.#monotonicLost;
    this.#wake(Math.max(this.world.time, due + 1e-6));
  }

  /** One turn of the event loop, in Node's order: timers, then input, then immediates; after a pause perhaps input first. */
  #turn(): void {
    if (this.isDead) return undefined;
    if (!this.isRunning) return this.#wake(this.#pausedUntil);
    if (this.#inputFirst) this.#takeInput();
    this.#inputFirst = false;
    const now = this.monotonic();
    for (let timer = this.#timers.peek(); timer && timer.due <= now; timer = this.#timers.peek()) {
      this.#timers.pop();
      this.#fire(timer);
    }
    this.#takeInput();
    const immediates = this.#immediates;
    this.#immediates = [];
    for (const timer of immediates) this.#fire(timer);
    if (this.isDead) return undefined;
    if (this.#inbox.length > 0 || this.#immediates.length > 0) this.#wake(this.world.time + TURN_MS);
    return this.#wakeForTimer();
  }

  #takeInput(): void {
    const inbox = this.#inbox;
    this.#inbox = [];
    for (const work of inbox) this.#run(work);
  }

  #fire(timer: Timer): void {
    if (!timer.isLive) return;
    timer.isLive = false;
    this.#run(() => timer.callback(...timer.args));
  }

  #run(work: () => void): void {
    if (this.isDead) return;
    try {
      this.stage.run(this, work);
    } catch (error) {
      if (error instanceof EndlessError) throw error;
      this.errors.push(error);
    }
  }
}
