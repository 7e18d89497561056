import { preparePostgres, takesConnections } from '../sample-app/demo/embedded-postgres.js';
import { isHealthy, prepareEtcd } from '../sample-app/demo/path-etcd.js';
import { acceptsConnections, prepareMariadb } from '../sample-app/demo/path-mariadb.js';
import { isServing, prepareZooKeeper } from '../sample-app/demo/path-zookeeper.js';
import type { ServerProcess } from '../sample-app/demo/server-process.js';
import type { StopList } from '../sample-app/demo/stop-list.js';
import type { LockServer } from './lock-server.js';

/** Start and crash of a server program. */
interface Program {
  readonly url: string;
  launch(): ServerProcess;
  isReady(url: string): Promise<true | undefined>;
  readonly crash: NodeJS.Signals;
}

/** A PostgreSQL, MariaDB, etcd or ZooKeeper server that keeps only locks. Its data is on disk, so it still has its locks after a crash. */
export class DurableServer implements LockServer {
  readonly host = '127.0.0.1';
  readonly forgets = false;
  private server: ServerProcess | undefined;

  private constructor(
    readonly name: string,
    private readonly program: Program,
  ) {}

  static async startPostgres(name: string, stops: StopList): Promise<DurableServer> {
    const prepared = await preparePostgres(stops);
    // SIGQUIT is the "immediate" shutdown of PostgreSQL: it writes nothing more, and the next start recovers. SIGKILL
    // would end only one process: the others might still run, and PostgreSQL would not start again.
    return this.open(name, { ...prepared, isReady: takesConnections, crash: 'SIGQUIT' }, stops);
  }

  static async startMariadb(name: string, stops: StopList): Promise<DurableServer> {
    const prepared = await prepareMariadb(stops);
    return this.open(name, { ...prepared, isReady: acceptsConnections, crash: 'SIGKILL' }, stops);
  }

  static async startEtcd(name: string, stops: StopList): Promise<DurableServer> {
    return this.open(name, { ...(await prepareEtcd(stops)), isReady: isHealthy, crash: 'SIGKILL' }, stops);
  }

  static async startZooKeeper(name: string, stops: StopList): Promise<DurableServer> {
    return this.open(
      name,
      { ...(await prepareZooKeeper(stops)), isReady: isServing, crash: 'SIGKILL' },
      stops,
    );
  }

  private static async open(name: string, program: Program, stops: StopList): Promise<DurableServer> {
    const server = new DurableServer(name, program);
    await stops.add(() => server.kill());
    await server.start();
    return server;
  }

  get url(): string {
    return this.program.url;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  get running(): boolean {
    return this.server?.running === true;
  }

  async start(): Promise<void> {
    if (this.running) return;
    const server = this.program.launch();
    this.server = server;
    await server.whenReady(() => this.program.isReady(this.url));
  }

  async kill(): Promise<void> {
    await this.server?.stop(this.program.crash);
  }
}
