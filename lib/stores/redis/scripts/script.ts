import { createHash } from 'node:crypto';

/** A Lua script, and its hash. With the hash alone, a server runs a script that it already knows (EVALSHA). */
export interface Script {
  readonly lua: string;
  readonly sha: string;
}

/** Computes the hash at the first use, to save time at start-up: not every script is used. */
export function script(lua: string): Script {
  let sha: string | undefined;
  return {
    lua,
    get sha() {
      return (sha ??= createHash('sha1').update(lua).digest('hex'));
    },
  };
}

/** The number of keys, the keys, and the arguments of a script. */
export type Packed = readonly [keys: number, ...rest: (string | number)[]];

/** Makes the command for a script from its KEYS and its ARGV. */
export function pack(keys: readonly string[], args: readonly (string | number)[] = []): Packed {
  return [keys.length, ...keys, ...args];
}
