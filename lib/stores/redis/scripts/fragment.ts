/**
 * A part of a script that several scripts share, with the locals that it expects and those that it leaves behind. A test
 * compares both lists with the text (test/stores/redis/lua-names.test.ts).
 *
 * A fragment is inserted as text, and is no Lua function: making functions took a tenth of the time of a script that
 * grants a lease.
 */
export class Fragment {
  /** Locals of the script that the text reads or changes. */
  readonly needs: readonly string[];
  /** Locals that the text declares for the script. */
  readonly sets: readonly string[];

  constructor(
    { needs, sets = [] }: { readonly needs: readonly string[]; readonly sets?: readonly string[] },
    private readonly lua: string,
  ) {
    this.needs = needs;
    this.sets = sets;
  }

  toString(): string {
    return this.lua;
  }
}

/** The locals in Lua texts that are only names, numbers and signs, such as `keep + 1` or `last[1]`. */
export function localsOf(...texts: readonly string[]): readonly string[] {
  return texts.flatMap((lua) => lua.match(/[A-Za-z_]\w*/g) ?? []);
}
