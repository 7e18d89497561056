import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import type { ProxyRequest } from '../proxy.js';
import { quantile } from './statistics.js';

const SCRIPT = fileURLToPath(new URL('../proxy.js', import.meta.url));
const PINGS = 300;
const CORRECTIONS = 3;

/** A longer network path to some servers. A proxy process delays messages in both directions. */
export class LongerWay {
  /** Milliseconds that a `PING` takes longer through the proxy than directly, with the final value of `heldBack`. */
  added: { readonly p50: number; readonly p90: number } = { p50: NaN, p90: NaN };
  /**
   * Milliseconds by which the proxy delays each message in each direction. The rest of `added` is the time that the
   * proxy itself needs.
   */
  heldBack = NaN;
  #requests = 0;

  private constructor(
    readonly urls: readonly string[],
    private readonly proxy: ChildProcess,
  ) {}

  /**
   * Opens a longer network path.
   *
   * @param added - milliseconds for both directions together. They include the time that the proxy itself needs, as
   * measured without other load.
   * @param jitter - average of a further random delay of each message in each direction, in milliseconds
   */
  static async open(urls: readonly string[], added: number, jitter = 0): Promise<LongerWay> {
    const proxy = fork(SCRIPT);
    const ports = urls.map((url) => Number(new URL(url).port));
    const [served] = (await ask(proxy, { id: 0, job: 'serve', ports })) as [readonly number[]];
    const way = new LongerWay(
      served.map((port) => `redis://127.0.0.1:${port}`),
      proxy,
    );
    await way.#adjust(urls[0] ?? '', added, jitter);
    return way;
  }

  async close(): Promise<void> {
    const ended = once(this.proxy, 'exit');
    this.proxy.kill('SIGKILL');
    await ended;
  }

  async #adjust(direct: string, added: number, jitter: number): Promise<void> {
    const clients = [new Redis(direct), new Redis(this.urls[0] ?? '')] as const;
    try {
      let delay = added / 2;
      for (let correction = 0; ; correction++) {
        await ask(this.proxy, { id: ++this.#requests, job: 'delay', ms: delay, jitter });
        this.heldBack = delay;
        this.added = await compare(...clients);
        if (correction === CORRECTIONS) return;
        delay = Math.max(0, delay - (this.added.p50 - added) / 2);
      }
    } finally {
      for (const client of clients) client.disconnect();
    }
  }
}

async function ask(proxy: ChildProcess, request: ProxyRequest): Promise<readonly unknown[]> {
  proxy.send(request);
  const [reply] = (await once(proxy, 'message')) as [{ result: unknown }];
  return [reply.result];
}

/** Compares the round trips of two clients. They take turns, so that other load of the machine disturbs both. */
async function compare(direct: Redis, around: Redis): Promise<{ p50: number; p90: number }> {
  const took = [direct, around].map((client) => ({ client, times: [] as number[] }));
  for (let index = -PINGS / 3; index < PINGS; index++) {
    for (const { client, times } of took) {
      const begun = performance.now();
      await client.ping();
      if (index >= 0) times.push(performance.now() - begun);
    }
  }
  const [short = [], long = []] = took.map(({ times }) => times);
  const differs = (share: number): number => quantile(long, share) - quantile(short, share);
  return { p50: differs(0.5), p90: differs(0.9) };
}
