/** The value of each field. Numbers may be strings from a passed-in client (`stringNumbers`). */
type Values<Name extends string> = Readonly<Record<Name, unknown>>;

/**
 * The fields of a reply, or of a part of it: values in a Lua table, in this order. Each field is declared once, by name:
 * from this come the Lua text that makes the table, and the values that the client reads.
 */
export class Fields<Name extends string> {
  readonly #names: readonly Name[];

  constructor(...names: Name[]) {
    this.#names = names;
  }

  /**
   * Lua text for the table.
   *
   * @param values - Lua text for the value of each field
   * @param code - a number that comes before the fields
   */
  lua(values: Readonly<Record<Name, string>>, code?: number): string {
    return `{${code === undefined ? '' : `${code}, `}${this.#listed(values)}}`;
  }

  /** Lua text for one field of a table. */
  at(name: Name, table: string): string {
    return `${table}[${this.#names.indexOf(name) + 1}]`;
  }

  /**
   * Lua text that appends the fields to a table.
   *
   * @param size - the local with the number of values in the table
   */
  append(table: string, size: string, values: Readonly<Record<Name, string>>): string {
    const places = this.#names.map((_, index) => `${table}[${size} + ${index + 1}]`);
    return `${places.join(', ')} = ${this.#listed(values)}`;
  }

  /**
   * Reads the fields; a field that the reply lacks is `undefined`.
   *
   * @param first - the index of the first field
   */
  of(reply: readonly unknown[], first = 0): Values<Name> {
    const found: Partial<Record<Name, unknown>> = {};
    for (const [index, name] of this.#names.entries()) found[name] = reply[first + index];
    return found as Values<Name>;
  }

  /** Reads rows of these fields, one after the other. */
  rows(reply: readonly unknown[], first = 0): readonly Values<Name>[] {
    const found: Values<Name>[] = [];
    for (let at = first; at < reply.length; at += this.#names.length) found.push(this.of(reply, at));
    return found;
  }

  /** The number of fields. */
  get size(): number {
    return this.#names.length;
  }

  #listed(values: Readonly<Record<Name, string>>): string {
    return this.#names.map((name) => values[name]).join(', ');
  }
}

/** An answer about one lease that begins with a number of its own. */
export class Outcome<Name extends string> {
  readonly #fields: Fields<Name>;

  constructor(
    private readonly code: number,
    ...names: Name[]
  ) {
    this.#fields = new Fields(...names);
  }

  /** Lua text for the answer. */
  lua(values: Readonly<Record<Name, string>>): string {
    return this.#fields.lua(values, this.code);
  }

  /** Reads the answer; `undefined` if it is another outcome. */
  of(answer: unknown): Readonly<Record<Name, unknown>> | undefined {
    if (!Array.isArray(answer) || Number(answer[0]) !== this.code) return undefined;
    return this.#fields.of(answer, 1);
  }
}
