import type { Socket } from 'node:net';

/** `pass` forwards data, `hold` keeps it until the mode is `pass` again, `drop` discards it. */
type Mode = 'pass' | 'hold' | 'drop';

/** A piece of the stream; without `data` it is the end of the stream (FIN). */
interface Piece {
  readonly data: Buffer | undefined;
  readonly receivedAt: number;
}

/** One direction of one proxied connection: a queue that keeps the order under all faults. */
export class OneWay {
  mode: Mode = 'pass';
  /** True after bytes were discarded. Nothing may be forwarded then: the stream would have a gap. */
  lostBytes = false;
  private delay = 0;
  private readonly queue: Piece[] = [];
  private timer: NodeJS.Timeout | undefined;

  constructor(
    from: Socket,
    private readonly to: Socket,
    fault: { readonly delay: number; readonly mode: Mode },
  ) {
    this.set(fault);
    from.on('data', (data) => this.push(data));
    from.on('end', () => this.push(undefined));
  }

  set({ delay, mode }: { readonly delay: number; readonly mode: Mode }): void {
    this.delay = delay;
    this.mode = mode;
    this.forward();
  }

  /** True while data waits for its delay or for the mode `pass`. */
  get isHolding(): boolean {
    return this.queue.length > 0;
  }

  /** True if the data that waits contains the text. */
  isHoldingText(text: string): boolean {
    return Buffer.concat(this.queue.flatMap(({ data }) => data ?? [])).includes(text);
  }

  /** Ends the stream after the data that was received so far. */
  end(): void {
    this.push(undefined);
  }

  stop(): void {
    clearTimeout(this.timer);
    this.queue.length = 0;
  }

  private push(data: Buffer | undefined): void {
    this.queue.push({ data, receivedAt: performance.now() });
    this.forward();
  }

  private forward(): void {
    clearTimeout(this.timer);
    if (this.mode === 'drop' || this.lostBytes) {
      // Data that still waits for its delay is on the way, and is lost, too.
      this.lostBytes ||= this.queue.some((piece) => piece.data !== undefined);
      this.queue.length = 0;
      return;
    }
    while (this.mode === 'pass' && this.queue.length > 0) {
      const wait = this.queue[0]!.receivedAt + this.delay - performance.now();
      if (wait > 0) {
        this.timer = setTimeout(() => this.forward(), Math.ceil(wait));
        return;
      }
      this.write(this.queue.shift()!.data);
    }
  }

  private write(data: Buffer | undefined): void {
    if (data === undefined) {
      this.to.end();
    } else if (this.to.writable) {
      this.to.write(data);
    }
  }
}
