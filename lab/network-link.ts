import { connect, createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';

interface Address {
  readonly host: string;
  readonly port: number;
}

/** One direction of one connection. It forwards data in order: immediately, after a delay, or after `heal()`. */
class OneWay {
  private readonly queue: { readonly data: Buffer | undefined; readonly due: number }[] = [];
  private timer: NodeJS.Timeout | undefined;

  constructor(
    from: Socket,
    private readonly to: Socket,
    private readonly rule: { readonly delay: number; readonly hold: boolean },
  ) {
    from.on('data', (data) => this.push(data));
    from.on('end', () => this.push(undefined));
  }

  forward(): void {
    clearTimeout(this.timer);
    while (!this.rule.hold) {
      const [piece] = this.queue;
      if (!piece) return;
      const wait = this.rule.delay === 0 ? 0 : piece.due - Date.now();
      if (wait > 0) {
        this.timer = setTimeout(() => this.forward(), wait);
        return;
      }
      this.queue.shift();
      if (piece.data === undefined) this.to.end();
      else if (this.to.writable) this.to.write(piece.data);
    }
  }

  stop(): void {
    clearTimeout(this.timer);
    this.queue.length = 0;
  }

  private push(data: Buffer | undefined): void {
    this.queue.push({ data, due: Date.now() + this.rule.delay });
    this.forward();
  }
}

interface Connection {
  readonly client: Socket;
  readonly server: Socket;
  readonly requests: OneWay;
  readonly replies: OneWay;
}

/**
 * The network between an instance and a server: a proxy on the loopback interface that can delay, hold and cut
 * connections.
 */
export class NetworkLink {
  private readonly listener: Server;
  private readonly connections = new Set<Connection>();
  private readonly requests = { delay: 0, hold: false };
  private readonly replies = { delay: 0, hold: false };
  private refusing = false;

  private constructor(private target: Address) {
    this.listener = createServer({ allowHalfOpen: true }, (client) => this.open(client));
  }

  static async start(target: Address): Promise<NetworkLink> {
    const link = new NetworkLink(target);
    link.listener.listen(0, '127.0.0.1');
    await once(link.listener, 'listening');
    return link;
  }

  get port(): number {
    const address = this.listener.address();
    return typeof address === 'object' && address ? address.port : 0;
  }

  /** Delays replies: the server executes a command long before the client receives the reply. */
  delayReplies(ms: number): void {
    this.replies.delay = ms;
  }

  holdReplies(): void {
    this.replies.hold = true;
  }

  holdRequests(): void {
    this.requests.hold = true;
  }

  /** Ends all connections, and ends each new connection immediately, as if no server listened. */
  disconnect(): void {
    this.refusing = true;
    this.cut();
  }

  /** Connects to another server from now on, as after a change of a DNS entry. */
  redirect(target: Address): void {
    this.target = target;
    this.cut();
  }

  /** Delivers the held data now, in order. */
  heal(): void {
    Object.assign(this.requests, { delay: 0, hold: false });
    Object.assign(this.replies, { delay: 0, hold: false });
    this.refusing = false;
    for (const { requests, replies } of this.connections) {
      requests.forward();
      replies.forward();
    }
  }

  async close(): Promise<void> {
    this.cut();
    this.listener.close();
    await once(this.listener, 'close');
  }

  private cut(): void {
    for (const connection of this.connections) end(connection);
  }

  private open(client: Socket): void {
    if (this.refusing) {
      client.destroy();
      return;
    }
    const { host, port } = this.target;
    const server = connect({ host, port, allowHalfOpen: true });
    const connection: Connection = {
      client,
      server,
      requests: new OneWay(client, server, this.requests),
      replies: new OneWay(server, client, this.replies),
    };
    this.connections.add(connection);
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      socket.on('error', () => end(connection));
      socket.on('close', () => {
        if (client.destroyed && server.destroyed) this.connections.delete(connection);
      });
    }
  }
}

// `resetAndDestroy()` is not enough: after `end()` on the socket, Node 20 leaves the handle open, and the process never
// ends.
function end({ client, server, requests, replies }: Connection): void {
  requests.stop();
  replies.stop();
  client.destroy();
  server.destroy();
}
