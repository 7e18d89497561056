import { asError } from '../../../core/errors.js';
import { neutrally } from '../../../core/neutral.js';
import { AdaptedServer } from '../connection/adapted-server.js';
import type { Server } from '../connection/driver.js';
import type { GlideClient, Route } from './client-types.js';
import { connectionIn, WHICH_CONNECTION } from './connection-name.js';
import { sendOne } from './glide-batch.js';
import { GlideDriver, isLoss } from './glide-driver.js';

const WHICH_MASTERS = ['CLUSTER', 'SLOTS'] as const;

/** The master in an entry of the answer to CLUSTER SLOTS. Servers before Redis 4 give no id. */
type NamedMaster = readonly [host: string | null, port: number, id?: string];

/** An entry in the answer to CLUSTER SLOTS: the first and the last slot, the master, and its replicas. */
type SlotRange = readonly [first: number, last: number, master: NamedMaster];

/** A master of the Cluster. */
interface Master {
  readonly id: string | undefined;
  /** The connection over which it was asked last. */
  connection: string | undefined;
  /** Another object for another connection, which may lead to a server that was not checked. */
  server: Server;
}

/** The driver for a `GlideClusterClient`. */
export class GlideClusterDriver extends GlideDriver {
  readonly isCluster = true;
  readonly address: string;
  /** GLIDE subscribes a client when it is made. So the waiters of a Cluster poll. */
  readonly hasMessages = false;
  /** The masters by their addresses. */
  #masters: ReadonlyMap<string, Master> = new Map();
  #looking: Promise<void> | undefined;

  constructor(client: GlideClient) {
    super(client);
    this.address = `cluster ${this.options.host}:${this.options.port}`;
  }

  /** Reads the list of masters. One look serves all callers (S30). */
  connect(): Promise<void> {
    return (this.#looking ??= neutrally(() => this.#look()).finally(() => (this.#looking = undefined)));
  }

  nodes(): readonly Server[] {
    return [...this.#masters.values()].map(({ server }) => server);
  }

  protected async ask(args: readonly string[], key: string | undefined): Promise<unknown> {
    try {
      return await this.#send(args, key === undefined ? 'randomNode' : { type: 'primarySlotKey', key });
    } catch (error) {
      // The other masters may still answer.
      if (isLoss(asError(error))) void this.connect().catch(() => undefined);
      throw this.failed(asError(error));
    }
  }

  async #look(): Promise<void> {
    let ranges: readonly SlotRange[];
    try {
      ranges = await this.#ranges();
    } catch (error) {
      const told = this.failed(asError(error));
      this.lost();
      throw told;
    }
    const masters = ranges.map(([, , master]) => master);
    this.#masters = new Map(masters.map((master) => this.#entryOf(master)));
    if (!this.found()) this.emit('refresh');
    void this.#compareConnections();
  }

  /** Asks any server, and then all masters: the Cluster is lost only if none of them answers. */
  async #ranges(): Promise<readonly SlotRange[]> {
    try {
      return (await this.#send(WHICH_MASTERS, 'randomNode')) as readonly SlotRange[];
    } catch (error) {
      const asked = [...this.#masters.keys()].map((address) => this.#send(WHICH_MASTERS, routeTo(address)));
      return (await Promise.any(asked).catch(() => Promise.reject(asError(error)))) as readonly SlotRange[];
    }
  }

  /** A master that another connection leads to may be another server, or have restarted with other settings. */
  async #compareConnections(): Promise<void> {
    const compare = async ([address, master]: [string, Master]): Promise<boolean> => {
      const answer = await this.#send(WHICH_CONNECTION, routeTo(address)).catch(asError);
      const connection = answer instanceof Error ? answer : connectionIn(answer);
      // A master that does not answer, or not this question, is checked when its id changes.
      if (connection instanceof Error || master.connection === connection) return false;
      const isOther = master.connection !== undefined;
      master.connection = connection;
      if (isOther) master.server = this.#serverAt(address);
      return isOther;
    };
    const others = await Promise.all([...this.#masters].map(compare));
    if (others.includes(true)) this.emit('refresh');
  }

  #entryOf([named, port, id]: NamedMaster): [address: string, master: Master] {
    // A server that does not know its own address answers with the port only.
    const address = `${named || String(this.options.host)}:${port}`;
    const known = this.#masters.get(address);
    if (known && known.id === id) return [address, known];
    return [address, { id, connection: undefined, server: this.#serverAt(address) }];
  }

  #serverAt(address: string): Server {
    const { host, port } = routeTo(address);
    return new AdaptedServer((args) => this.#send(args, routeTo(address)), { host, port });
  }

  #send(command: readonly string[], route: Route): Promise<unknown> {
    return sendOne(this.client, command, route);
  }
}

/** The route to one server. The address of IPv6 has colons, too. */
function routeTo(address: string): Extract<Route, { readonly type: 'routeByAddress' }> {
  const colon = address.lastIndexOf(':');
  return { type: 'routeByAddress', host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
}
