import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import type { Redis, RedisOptions } from 'ioredis';
import { CommandChannel } from './command-channel.js';
import { openClient } from './connection.js';
import type { ServerAddress } from './driver.js';
import type { MasterAddress } from './master-address.js';

/**
 * Milliseconds between two requests to each Sentinel. The Sentinels themselves take most of a second to notice a
 * promotion (0.8 s seen with Redis 7.0).
 */
const ASK_EVERY_MS = 500;

/** A Sentinel, and the address of the master that it named last. */
interface Sentinel {
  readonly client: Redis;
  readonly channel: CommandChannel;
  said: string | undefined;
}

/**
 * Asks the Sentinels of a client which server is the master. The client itself asks only when it connects. But after a
 * requested fail-over (`SENTINEL FAILOVER`) the old master remains a master for ten seconds. A client that is still
 * connected to it extends locks there, while they expire on the new master.
 *
 * All Sentinels are asked: they learn of the fail-over at different times, and the client may have asked a Sentinel
 * that did not know of it yet. The watch reacts only when a Sentinel changes its answer. A Sentinel that has lost
 * contact with the other Sentinels names the old master for ever, and this answer must not end each new connection to
 * the new master.
 *
 * The `failoverDetector` of ioredis waits for the message `+switch-master`. The detector misses a message that is sent
 * while it is not connected. A message that arrives while the client connects ends the client for good (seen with
 * 5.11).
 */
export class MasterWatch {
  #sentinels: readonly Sentinel[] | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** The latest answer, until it is compared with the client's connection. */
  #newest: ServerAddress | undefined;
  #isResolving = false;

  /** @param moved - called when a Sentinel names another master than before, and the client is connected */
  constructor(
    private readonly client: Redis,
    private readonly moved: (master: MasterAddress) => void,
  ) {}

  /** Called when a connection of the client is ready. The first call starts the watch. */
  begin(): void {
    this.#sentinels ??= (this.client.options.sentinels ?? []).map((address) => this.#open(address));
    this.#timer ??= setInterval(() => this.#askAll(), ASK_EVERY_MS).unref();
    this.#tell();
  }

  end(): void {
    clearInterval(this.#timer);
    this.#newest = undefined;
    for (const { channel } of this.#sentinels ?? []) {
      channel.close();
      channel.client.disconnect();
    }
  }

  #open(address: SentinelAddress): Sentinel {
    const client = openClient(optionsFor(this.client.options, address));
    const sentinel: Sentinel = { client, channel: new CommandChannel(client, true), said: undefined };
    // The watch reacts when an answer of the Sentinel differs from its previous answer. So ask for the first answer
    // now.
    client.on('ready', () => this.#ask(sentinel));
    sentinel.channel.open().catch(() => undefined);
    return sentinel;
  }

  #askAll(): void {
    for (const sentinel of this.#sentinels ?? []) this.#ask(sentinel);
    this.#tell();
  }

  #ask(sentinel: Sentinel): void {
    const { client } = sentinel;
    const { name = '' } = this.client.options;
    sentinel.channel
      .send(() => client.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name))
      .then((answer) => this.#hear(sentinel, answer))
      // Ignore the error: the other Sentinels are asked, too. If none of them answers, the watch notices no fail-over.
      .catch(() => undefined);
  }

  #hear(sentinel: Sentinel, answer: unknown): void {
    // A Sentinel that does not know the name of the master gives another answer.
    if (!Array.isArray(answer)) return;
    const before = sentinel.said;
    const said = `${answer[0]}:${answer[1]}`;
    sentinel.said = said;
    if (before === undefined || before === said) return;
    const { natMap } = this.client.options;
    const seenFromHere = typeof natMap === 'function' ? natMap(said) : natMap?.[said];
    this.#newest = seenFromHere ?? { host: String(answer[0]), port: Number(answer[1]) };
    this.#tell();
  }

  /**
   * Compares the latest answer with the connection of the client. If the client is connecting, the answer is compared
   * with the new connection: the client may have asked a Sentinel before the change.
   */
  #tell(): void {
    const master = this.#newest;
    if (!master || this.client.status !== 'ready') return;
    if (isIP(master.host)) this.#compare(master, [master.host]);
    else void this.#resolve(master);
  }

  /**
   * Resolves a host name: Sentinels with `announce-hostnames` answer with names, and a connection knows only the IP
   * address of its server. A failed lookup is repeated at the next tick of the timer.
   */
  async #resolve(master: ServerAddress): Promise<void> {
    // A slow resolver must not get another question every half second.
    if (this.#isResolving) return;
    this.#isResolving = true;
    const found = await lookup(master.host, { all: true }).catch(() => undefined);
    this.#isResolving = false;
    if (!found || this.#newest !== master || this.client.status !== 'ready') return;
    const ips = found.map(({ address }) => address);
    this.#compare(master, ips);
  }

  #compare({ port }: ServerAddress, ips: readonly string[]): void {
    this.#newest = undefined;
    this.moved({ ips, port });
  }
}

type SentinelAddress = NonNullable<RedisOptions['sentinels']>[number];

/** The options with which ioredis connects to a Sentinel. */
function optionsFor(
  { sentinelUsername, sentinelPassword, sentinelTLS, family }: RedisOptions,
  address: SentinelAddress,
): RedisOptions {
  const options: RedisOptions = {
    host: address.host ?? 'localhost',
    port: address.port ?? 26_379,
    connectionName: 'nestjs-redlock-sentinel',
    enableReadyCheck: false,
  };
  if (sentinelUsername) options.username = sentinelUsername;
  if (sentinelPassword) options.password = sentinelPassword;
  if (sentinelTLS) options.tls = sentinelTLS;
  if (address.family ?? family) options.family = address.family ?? family;
  return options;
}
