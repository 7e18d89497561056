import { UnfitStoreError } from '../../core/errors.js';
import type { NodeCheck } from '../../core/node-status.js';
import type { Gateway, GatewayError } from './gateway.js';
import type { Header } from './protocol.js';

/** How long a member may take to say how it is, in milliseconds. */
const LIMIT_MS = 3_000;

/** The oldest version whose gateway has the paths that are asked here. */
const OLDEST = [3, 4] as const;

interface Status {
  readonly header: Header;
  readonly version?: string;
  /** The id of the leader; missing when there is none. */
  readonly leader?: string;
  /** Alarms, such as that there is no space. */
  readonly errors?: readonly string[];
}

/**
 * Asks the members, then does what is needed before the first lock.
 *
 * @throws UnfitStoreError when the cluster must not be used
 */
export async function openOrUnfit(
  gateway: Gateway,
  prepare: (limit: number) => Promise<void>,
): Promise<void> {
  const asked = await askAll(gateway);
  const clusters = new Set(asked.flatMap(({ status }) => (status ? [status.header.cluster_id] : [])));
  if (clusters.size > 1)
    throw new UnfitStoreError(
      'cannot be used for locks: its endpoints belong to different clusters; list the members of one',
    );
  for (const { status } of asked) {
    const version = status?.version ?? OLDEST.join('.');
    const [major = 0, minor = 0] = version.split('.').map(Number);
    if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]))
      throw new UnfitStoreError(
        `cannot be used for locks: it is etcd ${version}; ${OLDEST.join('.')} is the oldest that can`,
      );
  }
  if (clusters.size === 0) throw asked[0]?.error as Error;
  try {
    await prepare(LIMIT_MS);
  } catch (error) {
    if (!(error as GatewayError).isNotAllowed) throw error;
    throw new UnfitStoreError(
      `does not let it in (${(error as Error).message}): give \`username\` and \`password\` of a user whose role ` +
        'may read and write what begins with `prefix`',
      { cause: error },
    );
  }
}

export async function checkMembers(gateway: Gateway): Promise<NodeCheck> {
  const asked = await askAll(gateway);
  const answers = asked.flatMap(({ status }) => (status ? [status] : []));
  if (answers.length === 0) throw asked[0]?.error as Error;
  const alarms = [...new Set(answers.flatMap(({ errors = [] }) => errors))].filter((text) =>
    /alarm|space/i.test(text),
  );
  if (alarms.length > 0)
    return { state: 'unfit', reason: `refuses what a lock writes: ${alarms.join('; ')}`, warnings: [] };
  if (!answers.some(({ leader = '0' }) => leader !== '0'))
    return { state: 'unfit', reason: 'has no leader: most of its members are away', warnings: [] };
  const warnings = asked.flatMap(({ host, error }) =>
    error
      ? [`${host} does not answer: ${error.message}; start the member, or take it out of \`endpoints\``]
      : [],
  );
  return { state: 'voting', warnings };
}

interface Asked {
  readonly host: string;
  readonly status?: Status;
  readonly error?: Error;
}

function askAll(gateway: Gateway): Promise<readonly Asked[]> {
  const asked = gateway.endpoints.map(async ({ host }, index): Promise<Asked> => {
    try {
      const { reply } = await gateway.call<Status>('maintenance/status', {}, LIMIT_MS, index);
      return { host, status: reply };
    } catch (error) {
      return { host, error: error as Error };
    }
  });
  return Promise.all(asked);
}
