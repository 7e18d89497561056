import { ZooKeeperError } from './zookeeper-error.js';

/** The reason for which there is no connection to a server. */
export interface Failure {
  /** Host and port of the server; missing if the reason is not in the server. */
  readonly server?: string;
  /** The words behind the server, such as "is read-only"; without a server, a sentence. */
  readonly reason: string;
  /** ZooKeeper's code, if the server has refused the connection. */
  readonly code?: number | undefined;
}

/** One error for the failures of all servers. It says a reason that several servers share once. */
export function errorOf(failures: Iterable<Failure>): ZooKeeperError {
  let refusal: number | undefined;
  const servers = new Map<string, string[]>();
  for (const { server, reason, code } of failures) {
    refusal ??= code;
    const sharing = servers.get(reason) ?? [];
    servers.set(reason, server === undefined ? sharing : [...sharing, server]);
  }
  const messages = [...servers].map(([reason, sharing]) => [sharing.join(' and '), reason].join(' ').trim());
  return new ZooKeeperError(messages.join('; '), true, refusal);
}
