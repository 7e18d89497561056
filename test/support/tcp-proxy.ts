import { connect, createServer, type Server, type Socket } from 'node:net';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import { resetSocket } from './reset-socket.js';
import { OneWay } from './tcp-one-way.js';

/**
 * Starts a proxy on the loopback interface in front of a server: `startTcpProxy(redis)`. Each fault applies to open and
 * to new connections, and can be changed at any time.
 */
export async function startTcpProxy(target: { readonly port: number }): Promise<TcpProxy> {
  for (let attempt = 1; ; attempt++) {
    const proxy = new TcpProxy(await freePort(), target.port);
    try {
      await proxy.accept();
      return proxy;
    } catch (error) {
      await proxy.close();
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE' || attempt === 5) {
        throw error;
      }
    }
  }
}

interface Connection {
  readonly client: Socket;
  readonly server: Socket;
  readonly requests: OneWay;
  readonly replies: OneWay;
}

export class TcpProxy {
  readonly host = LOOPBACK;
  private listener: Server | undefined;
  private readonly connections = new Set<Connection>();
  /** The connections that only the client has lost. The network still has their requests. */
  private readonly late = new Set<Connection>();
  private readonly faults = {
    requests: { delay: 0, mode: 'pass' as OneWay['mode'] },
    replies: { delay: 0, mode: 'pass' as OneWay['mode'] },
  };
  private readonly forget: () => void;

  constructor(
    readonly port: number,
    private targetPort: number,
  ) {
    this.forget = cleanUpAfterTests(() => this.close());
  }

  get url(): string {
    return `redis://${this.host}:${this.port}`;
  }

  /** Number of connections that are open now. */
  get connectionCount(): number {
    return this.connections.size;
  }

  /** True if a fault has discarded bytes of an open connection. `heal()` resets such a connection. */
  get hasLostBytes(): boolean {
    return [...this.connections].some(({ requests, replies }) => requests.lostBytes || replies.lostBytes);
  }

  /** True if requests of an open connection wait in the proxy. */
  get holdsRequests(): boolean {
    return [...this.connections].some(({ requests }) => requests.isHolding);
  }

  /**
   * True if a request with this text waits in the proxy. A Sentinel and the checks of clients send requests of their own, so
   * {@link holdsRequests} may be true because of them.
   */
  holdsRequestWith(text: string): boolean {
    return [...this.connections].some(({ requests }) => requests.isHoldingText(text));
  }

  /** Delays data from the server by so many milliseconds, and keeps its order. 0 ends the delay. */
  delayReplies(ms: number): void {
    this.change('replies', { delay: ms });
  }

  /** Delays data from the client by so many milliseconds, and keeps its order. 0 ends the delay. */
  delayRequests(ms: number): void {
    this.change('requests', { delay: ms });
  }

  /** Discards replies: the server executes requests, and the client gets no reply. */
  dropReplies(): void {
    this.change('replies', { mode: 'drop' });
  }

  /** Discards requests: they never reach the server; connections stay open. */
  dropRequests(): void {
    this.change('requests', { mode: 'drop' });
  }

  /** Keeps replies until `heal()` delivers them in order, like a network that is interrupted for a while. */
  holdReplies(): void {
    this.change('replies', { mode: 'hold' });
  }

  /** Keeps requests until `heal()` delivers them in order. */
  holdRequests(): void {
    this.change('requests', { mode: 'hold' });
  }

  /** Discards data in both directions; connections stay open, and new ones are accepted. */
  blackHole(): void {
    this.dropRequests();
    this.dropReplies();
  }

  /** Connects to another server from now on, like an address after a fail-over. Open connections are reset. */
  redirect(target: { readonly port: number }): void {
    this.targetPort = target.port;
    this.cut();
  }

  /** Resets (RST) all open connections. New connections work as before. */
  cut(): void {
    for (const connection of this.connections) {
      reset(connection);
    }
  }

  /**
   * Forgets the open connections, as a NAT or a load balancer does with idle ones: nobody is told, and the next data of
   * the client is answered with a reset.
   */
  forgetConnections(): void {
    for (const connection of this.connections) {
      connection.client.prependOnceListener('data', () => reset(connection));
    }
  }

  /** Ends the open connections after the first bytes of the next data from the server. New connections work as before. */
  cutInsideReply(): void {
    for (const connection of this.connections) {
      connection.replies.set({ delay: 0, mode: 'drop' });
      connection.server.once('data', (data) => connection.client.end(data.subarray(0, 6)));
    }
  }

  /** Refuses new connections. Open connections continue unless `cut()` is called, too. */
  refuse(): void {
    // The port is closed at once. The callback of `close` would also wait for open connections.
    this.listener?.close();
    this.listener = undefined;
  }

  /**
   * Resets (RST) the clients' side of all open connections, while the network keeps the requests that the proxy holds:
   * `deliverLate()` delivers them. New connections work without faults.
   */
  cutWithLateRequests(): void {
    for (const connection of this.connections) {
      this.late.add(connection);
      connection.requests.end();
      resetSocket(connection.client);
    }
    this.connections.clear();
    this.change('requests', { delay: 0, mode: 'pass' });
  }

  /** Delivers the requests of the connections that were cut. Resolves when the server has processed them. */
  async deliverLate(): Promise<void> {
    const closed = [...this.late].map(
      ({ server }) => new Promise((resolve) => server.once('close', resolve)),
    );
    for (const { requests } of this.late) requests.set({ delay: 0, mode: 'pass' });
    await Promise.all(closed);
  }

  /** Accepts connections again after `refuse()`. */
  async accept(): Promise<void> {
    if (this.listener) {
      return;
    }
    const listener = createServer({ allowHalfOpen: true }, (client) => this.open(client));
    await new Promise<void>((resolve, reject) => {
      listener.once('error', reject);
      listener.listen(this.port, this.host, resolve);
    });
    listener.unref();
    this.listener = listener;
  }

  /**
   * Ends all faults. A connection that lost bytes is reset: TCP never delivers a stream with a gap, and a client would
   * take the next reply for the lost one.
   */
  async heal(): Promise<void> {
    for (const connection of this.connections) {
      if (connection.requests.lostBytes || connection.replies.lostBytes) {
        reset(connection);
      }
    }
    this.change('requests', { delay: 0, mode: 'pass' });
    this.change('replies', { delay: 0, mode: 'pass' });
    await this.accept();
  }

  /** Resets all connections and stops listening. May be called more than once. */
  async close(): Promise<void> {
    this.forget();
    this.refuse();
    for (const connection of this.late) reset(connection);
    const sockets = [...this.connections, ...this.late].flatMap(({ client, server }) => [client, server]);
    this.cut();
    // A reset waits until earlier data has been sent, for ever if nobody reads the data.
    for (const socket of sockets) socket.destroy();
    // The proxy does not wait for the `close` events: a socket that is destroyed while it waits for its reset emits
    // none.
    this.connections.clear();
    this.late.clear();
    await new Promise(setImmediate);
  }

  private change(direction: 'requests' | 'replies', fault: { delay?: number; mode?: OneWay['mode'] }): void {
    Object.assign(this.faults[direction], fault);
    for (const connection of this.connections) {
      connection[direction].set(this.faults[direction]);
    }
  }

  private open(client: Socket): void {
    const server = connect({ host: LOOPBACK, port: this.targetPort, allowHalfOpen: true });
    client.setNoDelay(true);
    server.setNoDelay(true);
    const connection: Connection = {
      client,
      server,
      requests: new OneWay(client, server, this.faults.requests),
      replies: new OneWay(server, client, this.faults.replies),
    };
    this.connections.add(connection);
    for (const socket of [client, server]) {
      socket.unref();
      socket.on('error', () => reset(connection));
      socket.on('close', () => {
        if (client.destroyed && server.destroyed) {
          this.connections.delete(connection);
          this.late.delete(connection);
        }
      });
    }
  }
}

function reset({ client, server, requests, replies }: Connection): void {
  requests.stop();
  replies.stop();
  resetSocket(client);
  resetSocket(server);
}
