import type { ServerReport } from './server-report.js';

/**
 * The reason why locks on a node would not be safe (S17); the node then does not vote. `undefined` if they are safe.
 *
 * @param twin - the name of another node that is the same server
 */
export function unsafeBecause({ mode, role }: ServerReport, twin: string | undefined): string | undefined {
  if (mode === 'sentinel') {
    return 'it is a Sentinel, which keeps no keys; give ioredis options with `sentinels` and `name` instead';
  }
  if (mode === 'cluster') {
    return 'it is a node of a Redis Cluster, which keeps only some of the keys; give an ioredis `Cluster` instead';
  }
  if (role === 'slave') {
    return 'it is a replica, which loses locks that its master has granted; give the master instead';
  }
  if (twin !== undefined) {
    return `it is the same server as ${twin}, so one server would have two votes; list each server once`;
  }
  return undefined;
}

/**
 * Warnings about properties that a server does not report, so that {@link unsafeBecause} cannot check them. The server
 * is used anyway.
 */
export function untoldBy({ mode, role }: ServerReport): string[] {
  const untold: string[] = [];
  if (mode === undefined) {
    untold.push(
      'INFO has no redis_mode, so the library cannot tell whether the server is a node of a Redis Cluster, which keeps ' +
        'only some of the keys; make sure that it is not',
    );
  }
  if (role === undefined) {
    untold.push(
      'INFO has no role, so the library cannot tell whether the server is a replica, which loses locks; make sure ' +
        'that it is not',
    );
  }
  return untold;
}

/** Warning about a server whose user may not run INFO: all checks of this file need its answer. */
export const NO_INFO =
  'its user may not run INFO, so the library cannot tell whether the server is a replica, is listed twice, evicts ' +
  'keys, or has restarted from old data; allow INFO with ACL SETUSER <user> +info';

/** The reason why a node does not vote if its database does not exist: its locks would be in database 0. */
export const NO_SUCH_DATABASE =
  'it has no database of that number; give a number that exists (0 to 15, unless its setting `databases` differs)';

/**
 * Settings that make locks on a node less safe (S13, S14), each with its remedy.
 *
 * @param mayForget - `true` if a restart may forget locks: because the node then does not vote for a while, or because
 * the application accepts it
 */
export function weakBecause(
  { mode, evictionPolicy, appendOnly }: ServerReport,
  appendfsync: string | undefined,
  mayForget: boolean,
): string[] {
  const weaknesses: string[] = [];
  if (evictionPolicy !== 'noeviction') {
    weaknesses.push(
      `maxmemory-policy is ${evictionPolicy}, so locks may be evicted while they are held; set it to noeviction`,
    );
  }
  if (!mayForget && !(appendOnly && (appendfsync === 'always' || appendfsync === undefined))) {
    weaknesses.push(
      'a restart can forget locks that are held; set appendonly to yes and appendfsync to always' +
        (mode === 'cluster'
          ? ''
          : ', or set `restartGuard`; on one or two nodes, `restartGuard: false` accepts this risk'),
    );
  }
  return weaknesses;
}
