import { tmpdir } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { freePort } from '../sample-app/demo/free-port.js';
import { ServerProcess } from '../sample-app/demo/server-process.js';
import type { StopList } from '../sample-app/demo/stop-list.js';
import type { LockServer } from './lock-server.js';
import type { RedisKind } from './redis-kind.js';

const JS_REDIS = fileURLToPath(new URL('../sample-app/demo/js-redis.js', import.meta.url));
const PORT_ATTEMPTS = 5;

/** A Redis without persistence in its own process. After a crash it starts empty. */
export class RedisNode implements LockServer {
  readonly host = '127.0.0.1';
  readonly forgets = true;
  /** Client with a direct connection, which no fault affects. The lab only reads keys with it, and promotes a replica. */
  readonly client: Redis;
  private server: ServerProcess | undefined;

  private constructor(
    readonly name: string,
    readonly port: number,
    private readonly kind: RedisKind['kind'],
  ) {
    this.client = new Redis({ host: this.host, port, lazyConnect: true, retryStrategy: () => 50 });
    this.client.on('error', () => undefined);
  }

  static async start(name: string, { kind }: RedisKind, stops: StopList): Promise<RedisNode> {
    for (let attempt = 1; ; attempt++) {
      const node = new RedisNode(name, await freePort(), kind);
      await stops.add(() => node.stop());
      try {
        await node.start();
        return node;
      } catch (error) {
        // Another process may have taken the port meanwhile.
        if (attempt === PORT_ATTEMPTS) throw error;
      }
    }
  }

  get url(): string {
    return `redis://${this.host}:${this.port}`;
  }

  get running(): boolean {
    return this.server?.running === true;
  }

  /** Starts the server without data, as it has saved none. */
  async start(): Promise<void> {
    if (this.running) return;
    const [command, args] =
      this.kind === 'redis-server'
        ? [
            'redis-server',
            ['--bind', this.host, '--port', String(this.port), '--save', '', '--appendonly', 'no'],
          ]
        : [process.execPath, [JS_REDIS, String(this.port)]];
    const server = new ServerProcess(this.name, command, args, { cwd: tmpdir() });
    this.server = server;
    await server.whenReady(() => (/[Rr]eady to accept|redis:/.test(server.output) ? true : undefined));
    if (this.client.status === 'wait') await this.client.connect();
    await this.client.ping();
  }

  /** Ends the server as in a crash. */
  async kill(): Promise<void> {
    await this.server?.kill();
  }

  async stop(): Promise<void> {
    this.client.disconnect();
    await this.server?.kill();
  }
}
