type Value = string | number;

/** One argument of a script. */
export interface Argument<T> {
  readonly of: (subject: T) => Value;
  readonly isNumber: boolean;
  /** Lua text for the value of the local when the argument is left out, because every lease of the command is plain. */
  readonly plain: string | undefined;
}

/** An argument that Lua reads as a text. */
export function text<T>(of: (subject: T) => Value, plain?: string): Argument<T> {
  return { of, isNumber: false, plain };
}

/** An argument that Lua reads as a number; an empty text becomes nil. */
export function number<T>(of: (subject: T) => Value, plain?: string): Argument<T> {
  return { of, isNumber: true, plain };
}

/**
 * A row of arguments in ARGV: those of a command, or those of one of its leases. Each argument is declared once, under
 * the name of its Lua local: from this come the Lua text that reads the row, and the values that the client sends.
 *
 * The Lua text is made when the module loads.
 */
export class Arguments<T> {
  readonly #names: readonly string[];
  readonly #all: readonly Argument<T>[];

  constructor(all: Readonly<Record<string, Argument<T>>>) {
    this.#names = Object.keys(all);
    this.#all = Object.values(all);
  }

  /** The number of arguments in a row. */
  get size(): number {
    return this.#all.length;
  }

  /** Lua text for the number of arguments in a row; needs the local `plain`. */
  get step(): string {
    return `plain and ${this.#all.filter(({ plain }) => plain === undefined).length} or ${this.size}`;
  }

  /**
   * Lua text that reads the row into locals. If arguments can be left out, the text needs the local `plain`.
   *
   * @param first - the position of the first argument in ARGV: a number, or the name of a local
   */
  locals(first: number | string): string {
    const read = this.#reads(first);
    const mayLack = this.#all.flatMap(({ plain }, index) => (plain === undefined ? [] : [index]));
    const begin = this.#all.map(({ plain }, index) => plain ?? read[index]);
    const lines = [`local ${this.#names.join(', ')} = ${begin.join(', ')}`];
    if (mayLack.length > 0) {
      const [names, values] = [this.#names, read].map((of) => mayLack.map((index) => of[index]).join(', '));
      lines.push('if not plain then', `  ${names} = ${values}`, 'end');
    }
    return lines.join('\n');
  }

  /** As {@link locals}, for locals that exist already. */
  assign(first: number | string): string {
    return `${this.#names.join(', ')} = ${this.#reads(first).join(', ')}`;
  }

  #reads(first: number | string): readonly string[] {
    return this.#all.map(({ isNumber }, index) => {
      const at = typeof first === 'number' ? first + index : index === 0 ? first : `${first} + ${index}`;
      return isNumber ? `tonumber(ARGV[${at}])` : `ARGV[${at}]`;
    });
  }

  /** Appends the values of a row; of a plain row only those that are never left out. */
  push(args: Value[], subject: T, plain = false): void {
    for (const each of this.#all) if (!plain || each.plain === undefined) args.push(each.of(subject));
  }
}
