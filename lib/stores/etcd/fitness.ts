import { ForeignValueError, UnfitStoreError } from '../../core/errors.js';
import type { NodeCheck } from '../../core/node-status.js';
import { type Gateway, GatewayError, OtherClusterError } from './gateway.js';
import type { Header } from './protocol.js';

/** Time limit for a member to report its state, in milliseconds. */
const LIMIT_MS = 3_000;

/** The oldest version whose gateway has the paths that this package uses. */
const OLDEST = [3, 4] as const;

/**
 * The first versions in which a former leader, when it resumes, does not revoke leases that the new leader has renewed.
 * In earlier versions a held lock can end (https://github.com/etcd-io/etcd/issues/15247). Seen on 3.4.23, and not on
 * 3.5.16.
 */
const FIXED_IN: Readonly<Record<string, number>> = { '3.4': 31, '3.5': 13 };

interface Status {
  readonly header: Header;
  readonly version?: string;
  /** The id of the leader; missing when there is none. */
  readonly leader?: string;
  /** Alarms of the member, such as a full disk quota. */
  readonly errors?: readonly string[];
}

/**
 * Checks the members, then prepares the store for the first lock.
 *
 * @throws UnfitStoreError when the cluster must not be used
 */
export async function openOrUnfit(
  gateway: Gateway,
  prepare: (limit: number) => Promise<void>,
  warn: (message: string) => void,
): Promise<void> {
  const asked = await askAll(gateway);
  // The endpoints belong to different clusters: a lock in one cluster would not exclude a lock in the other cluster.
  const other = asked.find(({ error }) => error instanceof OtherClusterError)?.error;
  if (other) throw new UnfitStoreError(`cannot be used for locks: ${other.message}`, { cause: other });
  for (const { status } of asked) {
    const version = status?.version ?? OLDEST.join('.');
    const [major = 0, minor = 0] = version.split('.').map(Number);
    if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]))
      throw new UnfitStoreError(
        `cannot be used for locks: it is etcd ${version}; the oldest usable version is ${OLDEST.join('.')}`,
      );
  }
  for (const warning of weaknesses(asked)) warn(warning);
  try {
    if (asked.every(({ error }) => error)) throw asked[0]?.error as Error;
    await prepare(LIMIT_MS);
  } catch (error) {
    const reason =
      error instanceof ForeignValueError ? `cannot be used for locks: ${error.message}` : whyDenied(error);
    throw reason === undefined ? error : new UnfitStoreError(reason, { cause: error });
  }
}

/** The reason, if etcd refused a request because of missing rights. */
function whyDenied(error: unknown): string | undefined {
  if (!(error instanceof GatewayError && error.isNotAllowed)) return undefined;
  return (
    `refuses access (${error.message}): give \`username\` and \`password\` of a user whose role ` +
    'may read and write all keys that begin with `prefix`'
  );
}

/** The weakness of locks in this version, if there is one. */
function weakness({ version = '' }: Status): string | undefined {
  const [, line = '', patch] = /^(\d+\.\d+)\.(\d+)/.exec(version) ?? [];
  const fixed = FIXED_IN[line];
  if (fixed === undefined || Number(patch) >= fixed) return undefined;
  return (
    `etcd ${version} can end renewed locks when a suspended leader resumes (etcd issue 15247); ` +
    `update it to ${line}.${fixed} or later`
  );
}

/** @param tryToWrite - checks the rights that a lock needs, and writes nothing */
export async function checkMembers(
  gateway: Gateway,
  tryToWrite: (limit: number) => Promise<void>,
): Promise<NodeCheck> {
  try {
    return await checkOf(await askAll(gateway), tryToWrite);
  } catch (error) {
    const reason = whyDenied(error);
    if (reason === undefined) throw error;
    return { state: 'unfit', reason, warnings: [] };
  }
}

async function checkOf(
  asked: readonly Asked[],
  tryToWrite: (limit: number) => Promise<void>,
): Promise<NodeCheck> {
  const answers = asked.flatMap(({ status }) => (status ? [status] : []));
  if (answers.length === 0) throw asked[0]?.error as Error;
  const alarms = [...new Set(answers.flatMap(({ errors = [] }) => errors))].filter((text) =>
    /alarm|space/i.test(text),
  );
  if (alarms.length > 0)
    return { state: 'unfit', reason: `refuses to store locks: ${alarms.join('; ')}`, warnings: [] };
  if (!answers.some(({ leader = '0' }) => leader !== '0'))
    return { state: 'unfit', reason: 'has no leader: most of its members are unreachable', warnings: [] };
  await tryToWrite(LIMIT_MS);
  // Warnings are shown to everybody, as in a public health check, so they name no address.
  const warnings = asked.flatMap(({ error }, index) =>
    error
      ? [
          `member ${index + 1} of \`endpoints\` ${error instanceof OtherClusterError ? 'belongs to another cluster' : 'does not answer'}; ` +
            'start the member, or remove it from `endpoints`',
        ]
      : [],
  );
  return { state: 'voting', warnings: [...weaknesses(asked), ...warnings] };
}

/** Returns the weaknesses of the versions. A cluster of one member has none, because it has no former leader. */
function weaknesses(asked: readonly Asked[]): readonly string[] {
  if (asked.length === 1) return [];
  const weak = asked.map(({ status }) => status && weakness(status)).filter((text) => text !== undefined);
  return [...new Set(weak)];
}

interface Asked {
  readonly host: string;
  readonly status?: Status;
  readonly error?: Error;
}

function askAll(gateway: Gateway): Promise<readonly Asked[]> {
  const asked = gateway.endpoints.map(async ({ host }, index): Promise<Asked> => {
    try {
      const { reply } = await gateway.call<Status>('maintenance/status', {}, LIMIT_MS, { at: index });
      return { host, status: reply };
    } catch (error) {
      return { host, error: error as Error };
    }
  });
  return Promise.all(asked);
}
