import { asError } from '../../../core/errors.js';
import { neutrally } from '../../../core/neutral.js';
import { AdaptedServer } from '../connection/adapted-server.js';
import type { Server } from '../connection/driver.js';
import type { GlideClient } from './client-types.js';
import { sendOne } from './glide-batch.js';
import { GlideDriver } from './glide-driver.js';

/** Milliseconds between two requests for the list of masters. */
const REFRESH_MS = 5_000;

/** An entry in the answer to CLUSTER SLOTS: the first and the last slot, the master, and its replicas. */
type SlotRange = readonly [first: number, last: number, master: readonly [host: string | null, port: number]];

/** The driver for a `GlideClusterClient`. */
export class GlideClusterDriver extends GlideDriver {
  readonly isCluster = true;
  readonly address: string;
  /** GLIDE subscribes a client when it is made. So the waiters of a Cluster poll. */
  readonly hasMessages = false;
  readonly #known = new Map<string, Server>();
  #masters: readonly Server[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(client: GlideClient) {
    super(client);
    this.address = `cluster ${this.options.host}:${this.options.port}`;
  }

  connect(): Promise<void> {
    return this.#refresh();
  }

  nodes(): readonly Server[] {
    return this.#masters;
  }

  override attach(): void {
    super.attach();
    const refresh = (): void => void this.#refresh().catch(() => undefined);
    this.#timer ??= neutrally(() => setInterval(refresh, REFRESH_MS).unref());
  }

  override detach(): void {
    super.detach();
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  protected ask(args: readonly string[], key: string | undefined): Promise<unknown> {
    return sendOne(this.client, args, key === undefined ? 'randomNode' : { type: 'primarySlotKey', key });
  }

  async #refresh(): Promise<void> {
    try {
      const ranges = (await this.ask(['CLUSTER', 'SLOTS'], undefined)) as readonly SlotRange[];
      this.#masters = [...new Set(ranges.map(([, , [host, port]]) => this.#serverAt(host, port)))];
    } catch (error) {
      this.lastError = asError(error);
      throw error;
    }
    if (this.isDetached) return;
    this.lastError = undefined;
    const wasReady = this.state === 'ready';
    this.state = 'ready';
    this.emit(wasReady ? 'refresh' : 'ready');
  }

  #serverAt(named: string | null, port: number): Server {
    // A server that does not know its own address answers with the port only.
    const host = named || String(this.options.host);
    const name = `${host}:${port}`;
    const known = this.#known.get(name);
    if (known) return known;
    const route = { type: 'routeByAddress', host, port } as const;
    const server = new AdaptedServer((args) => sendOne(this.client, args, route), { host, port });
    this.#known.set(name, server);
    return server;
  }
}
