import { connect, createServer, type Server, type Socket } from 'node:net';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import { OneWay } from './tcp-one-way.js';

/**
 * Starts a proxy on the loopback interface in front of a server: `startTcpProxy(redis)`. Every fault can be
 * switched at run time and applies to open and to new connections.
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

  /** Connections that are open now. */
  get connectionCount(): number {
    return this.connections.size;
  }

  /** True when an open connection has lost bytes to a fault. `heal()` resets such a connection. */
  get hasLostBytes(): boolean {
    return [...this.connections].some(({ requests, replies }) => requests.lostBytes || replies.lostBytes);
  }

  /** Delay of data from the server in ms, with its order kept. 0 ends it. */
  delayReplies(ms: number): void {
    this.change('replies', { delay: ms });
  }

  /** Delay of data from the client in ms, with its order kept. 0 ends it. */
  delayRequests(ms: number): void {
    this.change('requests', { delay: ms });
  }

  /** Requests are executed and their replies are never seen. */
  dropReplies(): void {
    this.change('replies', { mode: 'drop' });
  }

  /** Requests never reach the server; connections stay open. */
  dropRequests(): void {
    this.change('requests', { mode: 'drop' });
  }

  /** Replies are kept and arrive, in order, after `heal()`: a network that stalls and comes back. */
  holdReplies(): void {
    this.change('replies', { mode: 'hold' });
  }

  /** Requests are kept and reach the server, in order, after `heal()`. */
  holdRequests(): void {
    this.change('requests', { mode: 'hold' });
  }

  /** Nothing gets through in either direction; connections stay open and new ones are accepted. */
  blackHole(): void {
    this.dropRequests();
    this.dropReplies();
  }

  /** Leads to another server, as an address does after a fail-over: open connections are reset, new ones go there. */
  redirect(target: { readonly port: number }): void {
    this.targetPort = target.port;
    this.cut();
  }

  /** Resets (RST) every open connection. New ones are served as before. */
  cut(): void {
    for (const connection of this.connections) {
      reset(connection);
    }
  }

  /** Refuses new connections; open ones live on unless `cut()` is called too. */
  refuse(): void {
    // Its callback would wait for the open connections as well; the port is closed at once.
    this.listener?.close();
    this.listener = undefined;
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
   * Ends every fault. A connection that lost bytes is reset: TCP never delivers a stream with a hole, and a
   * client that read on would take the next reply for the lost one.
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
    const sockets = [...this.connections].flatMap(({ client, server }) => [client, server]);
    this.cut();
    // A reset waits until what was written before has gone, for good where nobody takes it.
    for (const socket of sockets) socket.destroy();
    // Not until each has told that it is closed: one that is destroyed while it waits so never does (libuv refuses to reset it).
    this.connections.clear();
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
        }
      });
    }
  }
}

function reset({ client, server, requests, replies }: Connection): void {
  requests.stop();
  replies.stop();
  client.resetAndDestroy();
  server.resetAndDestroy();
}
