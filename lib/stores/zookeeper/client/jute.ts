// The encoding of ZooKeeper's messages ("jute"): big-endian numbers, and bytes after their length.

/** Encodes one message. */
export class JuteWriter {
  readonly #parts: Buffer[] = [];
  #size = 0;

  int(value: number): this {
    const part = Buffer.allocUnsafe(4);
    part.writeInt32BE(value);
    return this.#add(part);
  }

  long(value: bigint): this {
    const part = Buffer.allocUnsafe(8);
    part.writeBigInt64BE(value);
    return this.#add(part);
  }

  flag(value: boolean): this {
    return this.#add(Buffer.of(value ? 1 : 0));
  }

  bytes(value: Buffer): this {
    return this.int(value.length).#add(value);
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value));
  }

  /** Returns the message after its length, as it is sent. */
  packet(): Buffer {
    const length = Buffer.allocUnsafe(4);
    length.writeInt32BE(this.#size);
    return Buffer.concat([length, ...this.#parts]);
  }

  #add(part: Buffer): this {
    this.#parts.push(part);
    this.#size += part.length;
    return this;
  }
}

/** Decodes one message. Each method throws a `RangeError` if the message ends too early. */
export class JuteReader {
  #at = 0;

  constructor(private readonly message: Buffer) {}

  /** `true` after the last byte. */
  get isAtEnd(): boolean {
    return this.#at >= this.message.length;
  }

  int(): number {
    return this.message.readInt32BE(this.#skip(4));
  }

  long(): bigint {
    return this.message.readBigInt64BE(this.#skip(8));
  }

  flag(): boolean {
    return this.message.readUInt8(this.#skip(1)) !== 0;
  }

  /** Returns no bytes for a value that is missing, whose length is -1. */
  bytes(): Buffer {
    const length = Math.max(0, this.int());
    const from = this.#skip(length);
    if (this.#at > this.message.length) throw new RangeError('a message ends before its last value');
    return this.message.subarray(from, this.#at);
  }

  text(): string {
    return this.bytes().toString();
  }

  texts(): string[] {
    const count = Math.max(0, this.int());
    const texts: string[] = [];
    while (texts.length < count) texts.push(this.text());
    return texts;
  }

  /** Moves on by `size` bytes, and returns the position before them. */
  #skip(size: number): number {
    const from = this.#at;
    this.#at += size;
    return from;
  }
}
