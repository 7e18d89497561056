import type { Cluster, Command, Redis } from 'ioredis';
import type { Packed } from '../scripts/script.js';
import type { Driver } from './driver.js';
import { isSlotMoving } from './moving-slot.js';

/** The commands that run scripts. */
export type ScriptRunner = Pick<Driver, 'evalsha' | 'eval'>;

/**
 * Returns the object through which a client runs scripts: usually the client itself.
 *
 * A client of the application may have `enableAutoPipelining`. It then keeps commands while another pipeline has no
 * answer (S15). On a Cluster, iovalkey and ioredis up to 5.10 take the hash of a script for its key. They put scripts of
 * several hash slots into one pipeline, and refuse it: all locks were lost (seen with 5.10.1). So each script gets a
 * pipeline of its own, which is sent at once; on a Cluster, a command that the client does not put into a pipeline.
 */
export function scriptRunnerOf(client: Driver): ScriptRunner {
  if (client.isCluster && 'sendCommand' in client) return clusterRunner(client as unknown as Cluster);
  const { enableAutoPipelining } = client.options as { readonly enableAutoPipelining?: boolean };
  if (!enableAutoPipelining || !('pipeline' in client)) return client;
  const pipelined = client as unknown as Redis;
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

/**
 * Runs scripts on a Cluster of ioredis or iovalkey, and returns the answer TRYAGAIN at once. The Cluster itself would
 * repeat the command 16 times, for 1.6 s by default, and nobody would learn the reason in time.
 *
 * Only the methods that make a command see this object in place of the client; the client itself sends the command.
 */
function clusterRunner(cluster: Cluster): ScriptRunner {
  const sendCommand = (command: Command): Promise<unknown> => {
    const { reject } = command;
    void cluster.sendCommand(command);
    // The Cluster has replaced `reject` by a function that follows MOVED and ASK, and repeats the command.
    const handle = command.reject;
    command.reject = (error) => (isSlotMoving(error) ? reject : handle).call(command, error);
    return command.promise;
  };
  return Object.create(cluster, {
    options: { value: { ...cluster.options, enableAutoPipelining: false } },
    sendCommand: { value: sendCommand },
  }) as ScriptRunner;
}
