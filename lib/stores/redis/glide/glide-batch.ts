import { neutrally } from '../../../core/neutral.js';
import { likeIoredis } from './glide-errors.js';
import type { Batch, BatchOptions, GlideClient, Route } from './client-types.js';

/**
 * Milliseconds after which GLIDE gives up a request. The limit replaces `requestTimeout` of the client, a quarter of a
 * second by default: the library has time limits of its own, which follow the ttl. GLIDE keeps a request for as long
 * while it is not connected, and sends it late (S16).
 */
export const REQUEST_LIMIT_MS = 5_000;

/** The number of the request `CustomCommand` in the protocol of GLIDE: a command as a list of texts. */
const CUSTOM_COMMAND = 1;

/** The number of `Decoder.Bytes`. `Decoder.String` fails on bytes that are no UTF-8, such as a key of another program. */
const AS_BYTES = 0;

/**
 * Sends commands in one batch, and returns their answers in the form of ioredis; the error of a server takes the place
 * of an answer.
 *
 * A batch has a time limit of its own. And a `GlideClusterClient` repeats a command after an error, but a batch only on
 * demand: a repeated acquisition could follow its release (S15).
 */
export async function sendBatch(
  client: GlideClient,
  commands: readonly (readonly string[])[],
  route?: Route,
): Promise<readonly unknown[]> {
  const options: BatchOptions = { timeout: REQUEST_LIMIT_MS, decoder: AS_BYTES, ...(route && { route }) };
  // GLIDE keeps the functions that settle a request until another request takes their place (S30).
  const answers = await neutrally(() => client.exec(batchOf(commands), false, options));
  return (answers ?? []).map(likeIoredis);
}

/** As {@link sendBatch}, for one command. Rejects with the error of the server. */
export async function sendOne(
  client: GlideClient,
  command: readonly string[],
  route?: Route,
): Promise<unknown> {
  const [answer] = await sendBatch(client, [command], route);
  if (answer instanceof Error) throw answer;
  return answer;
}

function batchOf(commands: readonly (readonly string[])[]): Batch {
  return {
    commands: commands.map((texts) => ({
      requestType: CUSTOM_COMMAND,
      argsArray: { args: texts.map((text) => Buffer.from(text)) },
    })),
    isAtomic: false,
    setCommandsIndexes: [],
  };
}
