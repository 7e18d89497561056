import { UnfitStoreError } from '../../core/errors.js';
import type { NodeCheck } from '../../core/node-status.js';
import { ANY_VERSION, check, create, exists, getData, multi, setData } from './client/requests.js';
import type { ZooKeeperClient } from './client/zookeeper-client.js';
import { isRefusal, Refusal } from './client/zookeeper-error.js';
import { orNothing } from './key-records.js';
import { CLOCK, FIXED, LOCKS } from './names.js';

/** Time limit in milliseconds of a request of the preparation. */
const LIMIT_MS = 5_000;

/**
 * Creates the nodes that the store needs, unless they exist.
 *
 * @throws UnfitStoreError when the store may not create them, or may not use them
 */
export async function prepare(client: ZooKeeperClient): Promise<void> {
  try {
    await Promise.all(FIXED.map((path) => client.ask(exists(path), LIMIT_MS)));
  } catch (error) {
    if (!isRefusal(error, Refusal.noNode)) throw orUnfit(error);
    for (const path of FIXED) await ensure(client, path);
  }
  await mayUse(client);
}

/** Anybody may ask if a node exists, so only a read and a write show a wrong user. */
async function mayUse(client: ZooKeeperClient): Promise<void> {
  try {
    await client.ask(getData(LOCKS), LIMIT_MS);
    await client.ask(setData(CLOCK, Buffer.alloc(0), ANY_VERSION), LIMIT_MS);
  } catch (error) {
    throw orUnfit(error);
  }
}

/** Reports whether a majority of the servers accepts writes; writes nothing. */
export async function checkMajority(client: ZooKeeperClient): Promise<NodeCheck> {
  try {
    // Only the first process creates the nodes of the store. Before that, there must be the path in which it creates them.
    if (!(await isThere(client, LOCKS))) await client.ask(multi([check(client.top, ANY_VERSION)]), LIMIT_MS);
    return { state: 'voting', warnings: [] };
  } catch (error) {
    const unfit = orUnfit(error);
    if (!(unfit instanceof UnfitStoreError)) throw error;
    return { state: 'unfit', reason: unfit.message, warnings: [] };
  }
}

/** Asks a majority whether there is a node. */
async function isThere(client: ZooKeeperClient, path: string): Promise<boolean> {
  return (await orNothing(client, multi([check(path, ANY_VERSION)]))) !== undefined;
}

async function ensure(client: ZooKeeperClient, path: string): Promise<void> {
  try {
    await client.ask(create(path, Buffer.alloc(0), { access: client.access }), LIMIT_MS);
  } catch (error) {
    if (!isRefusal(error, Refusal.nodeExists)) throw orUnfit(error);
  }
}

/** The error for the start of the application, if another attempt is useless. */
export function orUnfit(error: unknown): unknown {
  if (isRefusal(error, Refusal.noNode))
    return new UnfitStoreError(
      'does not have the path that follows the servers in `connectionString`: create it, or leave it out',
      { cause: error },
    );
  if (isRefusal(error, Refusal.saslRequired))
    return new UnfitStoreError(
      `refuses access (${error.message}): give \`auth\` with \`scheme: 'sasl'\` and a user of DIGEST-MD5`,
      { cause: error },
    );
  if (isRefusal(error, Refusal.noAuth, Refusal.authFailed))
    return new UnfitStoreError(
      `refuses access (${error.message}): give as \`auth\` a user who may create, read, write and delete nodes in ` +
        'the path behind the servers of `connectionString`',
      { cause: error },
    );
  return error;
}
