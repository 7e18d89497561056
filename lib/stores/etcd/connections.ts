import { Agent as HttpAgent, type ClientRequest, request as requestHttp } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import type { Socket } from 'node:net';
import type { EtcdOptions } from './etcd.options.js';

/** Largest number of simultaneous requests to one member. Further requests wait, at most until their time limit. */
export const MOST_SOCKETS = 64;

/**
 * Milliseconds without a request after which a connection is old. A network between the process and etcd (NAT, IPVS, a
 * load balancer) may have forgotten it. The next packet is then discarded, or answered with a reset.
 */
const OLD_AFTER_MS = 1_000;

/** Milliseconds without traffic after which the system checks a connection (TCP keep-alive). */
const KEEP_ALIVE_MS = 10_000;

export interface RequestOptions {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** `true` for a stream, which has a connection of its own. */
  readonly streams?: boolean;
  /** `true` if the request must not use an old connection. */
  readonly fresh?: boolean;
}

/** The HTTP connections of a process to the members of a cluster. */
export class Connections {
  readonly #agent: HttpAgent;
  /** The agent for streams: each stream has its own connection, which ends with it. */
  readonly #streamAgent: HttpAgent;
  readonly #isSecure: boolean;
  /** The idle connections, each with the end of its last request, by the monotonic clock. */
  readonly #idle = new Map<Socket, number>();

  /** @param dropped - called when the other side ends an idle connection */
  constructor(
    { tls }: EtcdOptions,
    isSecure: boolean,
    private readonly dropped: () => void,
  ) {
    this.#isSecure = isSecure;
    const Agent = isSecure ? HttpsAgent : HttpAgent;
    this.#agent = new Agent({
      ...tls,
      keepAlive: true,
      keepAliveMsecs: KEEP_ALIVE_MS,
      maxSockets: MOST_SOCKETS,
    });
    this.#streamAgent = new Agent({ ...tls, keepAlive: false });
  }

  request(
    { hostname, port, protocol }: URL,
    { path, headers, streams, fresh }: RequestOptions,
  ): ClientRequest {
    // Node takes the connection that was used last. If that one is old, all are.
    if (fresh && [...this.#idle.values()].every((since) => isOld(performance.now() - since)))
      this.discardIdle();
    const request = this.#isSecure ? requestHttps : requestHttp;
    return request({
      hostname: hostname.replaceAll(/[[\]]/g, ''),
      port: port === '' ? (protocol === 'https:' ? 443 : 80) : port,
      path: `/v3/${path}`,
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      agent: streams ? this.#streamAgent : this.#agent,
    }).on('socket', (socket) => {
      if (streams) socket.setKeepAlive(true, KEEP_ALIVE_MS);
    });
  }

  /**
   * Records that a request uses the connection.
   *
   * @returns `true` if the connection is old
   */
  use(socket: Socket): boolean {
    const since = this.#idle.get(socket);
    this.#idle.delete(socket);
    if (socket.connecting)
      socket.once('close', () => {
        if (this.#idle.delete(socket)) this.dropped();
      });
    return since !== undefined && isOld(performance.now() - since);
  }

  /** Records that the connection got the answer to its request. */
  free(socket: Socket): void {
    if (!socket.destroyed) this.#idle.set(socket, performance.now());
  }

  /** Closes all idle connections, because a network that has forgotten one of them has forgotten the others, too. */
  discardIdle(): void {
    const idle = [...this.#idle.keys()];
    this.#idle.clear();
    for (const socket of idle) socket.destroy();
  }

  close(): void {
    this.#idle.clear();
    this.#agent.destroy();
    this.#streamAgent.destroy();
  }
}

function isOld(idleFor: number): boolean {
  return idleFor > OLD_AFTER_MS;
}
