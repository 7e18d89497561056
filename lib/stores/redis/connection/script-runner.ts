import type { Cluster, Redis } from 'ioredis';
import type { Driver, Packed } from './driver.js';

/** The commands that run scripts. */
export type ScriptRunner = Pick<Driver, 'evalsha' | 'eval'>;

/**
 * Returns the object through which a client runs scripts: usually the client itself.
 *
 * A client of the application may have `enableAutoPipelining`. It then keeps commands while another pipeline has no
 * answer (S15). On a Cluster, iovalkey and ioredis up to 5.10 take the hash of a script for its key. They put scripts of
 * several hash slots into one pipeline, and refuse it: all locks were lost (seen with 5.10.1). So each script gets a
 * pipeline of its own, which is sent at once.
 */
export function scriptRunnerOf(client: Driver): ScriptRunner {
  const { enableAutoPipelining } = client.options as { readonly enableAutoPipelining?: boolean };
  if (!enableAutoPipelining || !('pipeline' in client)) return client;
  const pipelined = client as unknown as Redis | Cluster;
  const run = async (command: 'evalsha' | 'eval', script: string, packed: Packed): Promise<unknown> => {
    const pipeline = pipelined.pipeline();
    const [[error, reply] = [null, undefined]] = (await pipeline[command](script, ...packed).exec()) ?? [];
    if (error) throw error;
    return reply;
  };
  return {
    evalsha: (sha, ...packed) => run('evalsha', sha, packed),
    eval: (lua, ...packed) => run('eval', lua, packed),
  };
}
