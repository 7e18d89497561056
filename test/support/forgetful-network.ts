import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { LOOPBACK } from './free-port.js';
import { resetSocket } from './reset-socket.js';

/** A network that forgets open connections on request. New connections work. */
export class ForgetfulNetwork {
  readonly #listener: Server;
  readonly #open = new Set<{ client: Socket; server: Socket; mode: 'pass' | 'silent' | 'reset' }>();
  /** The first use of a forgotten connection, by `performance.now()`. */
  usedAt = Infinity;

  constructor(target: number) {
    this.#listener = createServer((client) => {
      const server = connect(target, LOOPBACK);
      const connection = { client, server, mode: 'pass' as 'pass' | 'silent' | 'reset' };
      this.#open.add(connection);
      client.on('data', (data) => {
        if (connection.mode === 'pass') return void server.write(data);
        this.usedAt = Math.min(this.usedAt, performance.now());
        if (connection.mode === 'reset') resetSocket(client);
      });
      server.on('data', (data) => {
        if (connection.mode === 'pass') client.write(data);
      });
      for (const [socket, other] of [
        [client, server],
        [server, client],
      ] as const) {
        socket.on('error', () => undefined);
        socket.on('close', () => {
          if (connection.mode === 'pass') other.destroy();
        });
      }
    });
  }

  /** The port that leads to the server. */
  async port(): Promise<number> {
    if (!this.#listener.listening)
      await new Promise<void>((resolve) => this.#listener.listen(0, LOOPBACK, resolve));
    return (this.#listener.address() as AddressInfo).port;
  }

  /** Forgets all connections that are open now, and answers their packets with nothing or a reset. */
  forget(mode: 'silent' | 'reset'): void {
    for (const connection of this.#open) connection.mode = mode;
    this.usedAt = Infinity;
  }

  close(): void {
    this.#listener.close();
    for (const { client, server } of this.#open) {
      client.destroy();
      server.destroy();
    }
  }
}
