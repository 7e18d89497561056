import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import type { ProxyRequest } from '../proxy.js';
import { quantile } from './statistics.js';

const SCRIPT = fileURLToPath(new URL('../proxy.js', import.meta.url));
const PINGS = 300;
const CORRECTIONS = 3;

/** A longer way to some servers, as if they were elsewhere: a process of its own delays each direction. */
export class LongerWay {
  /** A `PING` takes this many milliseconds longer through the proxy than directly, after all corrections. */
  added: { readonly p50: number; readonly p90: number } = { p50: NaN, p90: NaN };
  /** The proxy delays each message by this many milliseconds. The rest of `added` is the time of its own work. */
  heldBack = NaN;
  #requests = 0;

  private constructor(
    readonly urls: readonly string[],
    private readonly proxy: ChildProcess,
  ) {}

  /**
   * @param added - milliseconds for both directions together; what the process between costs by itself is part of them,
   * as far as a quiet moment shows it
   * @param jitter - how much longer a message may take in each direction, on average
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

/** Turn and turn about, so that what disturbs the machine disturbs both. */
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
