import { createHash } from 'node:crypto';

/** A Lua script and the hash by which a server that has seen it knows it. */
export interface Script {
  readonly lua: string;
  readonly sha: string;
}

/** Hashes it when it is first sent: nobody waits for that at start-up, and not every script is used. */
export function script(lua: string): Script {
  let sha: string | undefined;
  return {
    lua,
    get sha() {
      return (sha ??= createHash('sha1').update(lua).digest('hex'));
    },
  };
}
