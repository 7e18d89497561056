import { EventEmitter } from 'node:events';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { ServerProbe } from '../../../../lib/stores/redis/health/server-probe.js';
import { CommandChannel } from '../../../../lib/stores/redis/connection/command-channel.js';
import type { Driver } from '../../../../lib/stores/redis/connection/driver.js';
import { newFleet } from '../../../support/core.js';

const OLD = 60_000_000;
const NOTHING = '';

/** A connection whose server changes, and that tells which former server each check named. */
class Connection {
  runId = 'first';
  readonly formers: unknown[] = [];
  /** The silence of the former server that the last check told, in milliseconds. */
  silentFor = 0;
  quietFor = 0;
  /** The check waits for this Promise. It rejects if the connection is lost before the answer. */
  answer: Promise<unknown> = Promise.resolve();
  readonly isCluster = false;
  readonly client = this;
  readonly canSend = true;
  readonly lacksDatabase = false;

  info(): Promise<string> {
    return Promise.resolve(
      `redis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\nrun_id:${this.runId}\r\nuptime_in_seconds:99999\r\n`,
    );
  }

  send<Reply>(ask: () => Promise<Reply>): Promise<Reply> {
    return ask();
  }

  async run(_script: unknown, [keys, , , , former, silentFor]: readonly unknown[]): Promise<unknown> {
    if (keys !== 2) return keys === 1 ? [] : [Date.now() * 1_000, -1, '-'];
    this.formers.push(former);
    this.silentFor = Number(silentFor);
    await this.answer;
    return [Date.now() * 1_000, OLD, '-'];
  }
}

describe('the guard asks whether a new connection leads to another server (S28)', () => {
  let connection: Connection;
  let probe: ServerProbe;

  async function reconnect(runId: string): Promise<void> {
    connection.runId = runId;
    probe.begin();
    await probe.passed().catch(() => undefined);
  }

  beforeEach(async () => {
    connection = new Connection();
    probe = new ServerProbe('node', connection as unknown as CommandChannel, {
      keyPrefix: 'lock:',
      guarded: true,
      several: true,
      names: new Set(),
      runIds: new Map(),
      warnOnce: () => undefined,
    });
    await reconnect('first');
    probe.lost();
  });

  test('the check of a new connection names the former server, and later checks of that connection name none', async () => {
    await reconnect('second');
    await probe.meet();
    expect(connection.formers).toEqual([NOTHING, 'first', NOTHING]);
  });

  test('the silence of the former server counts from its last answer, but hours of idleness do not count', async () => {
    const silentAfter = async (quietFor: number): Promise<number> => {
      await reconnect('first');
      connection.quietFor = quietFor;
      probe.lost();
      await reconnect('second');
      return connection.silentFor;
    };
    expect(await silentAfter(3_000)).toBeGreaterThanOrEqual(3_000);
    expect(await silentAfter(7_200_000)).toBeLessThan(3_600_000);
  });

  test('the answer to a check that was sent before the connection was lost does not forget the former server', async () => {
    await reconnect('first');
    let arrive = (): void => undefined;
    connection.answer = new Promise<void>((resolve) => (arrive = resolve));
    const check = probe.meet();
    probe.lost();
    arrive();
    await check;
    await reconnect('second');
    expect(connection.formers.at(-1)).toBe('first');
  });

  test('a connection that is lost again before its check ends leaves the former server known', async () => {
    connection.answer = Promise.reject(new Error('the connection was lost'));
    await reconnect('second');
    probe.lost();
    connection.answer = Promise.resolve();
    await reconnect('second');
    expect(connection.formers).toEqual([NOTHING, 'first', 'first']);
  });
});

describe('the check of a connection on which a server hangs', () => {
  let answer: (info: string) => void;
  let probe: ServerProbe;
  let channel: CommandChannel;

  beforeEach(() => {
    jest.useFakeTimers();
    const server = new Connection();
    const info = new Promise<string>((resolve) => (answer = resolve));
    const client = Object.assign(new EventEmitter(), {
      status: 'ready',
      isCluster: false,
      options: {},
      info: () => info,
      evalsha: (_sha: string, ...packed: unknown[]) => server.run(_sha, packed),
    });
    channel = new CommandChannel(client as unknown as Driver, false);
    probe = new ServerProbe('node', channel, newFleet());
    probe.begin();
  });
  /** The message with which the check is not passed. */
  const refusal = (): Promise<string | undefined> =>
    probe.passed().then(
      () => undefined,
      (error: Error) => error.message,
    );
  const hangs = expect.stringContaining('has not answered for a while');

  afterEach(() => {
    channel.close();
    jest.useRealTimers();
  });

  test('keeps no caller waiting after five seconds, although the passed-in client never fails the check', async () => {
    const waiting = [refusal(), refusal()];
    await jest.advanceTimersByTimeAsync(4_000);
    waiting.push(refusal());
    await jest.advanceTimersByTimeAsync(1_100);
    expect(await Promise.all(waiting)).toEqual([hangs, hangs, hangs]);
    expect(await refusal()).toEqual(hangs);
    expect(probe.isFit).toBe(false);
  });

  test('ends well when the server answers after all', async () => {
    const concluded = probe.concluded();
    const early = probe.passed();
    await jest.advanceTimersByTimeAsync(4_900);
    answer(await new Connection().info());
    await early;
    await concluded;
    expect(probe.isFit).toBe(true);
  });

  test('ends well when the server answers after the connection has counted as dead', async () => {
    const concluded = probe.concluded();
    const early = refusal();
    await jest.advanceTimersByTimeAsync(30_000);
    expect(await early).toEqual(hangs);
    answer(await new Connection().info());
    await concluded;
    await probe.passed();
  });

  test('lets its callers wait for the check of the next connection', async () => {
    const early = probe.passed();
    await jest.advanceTimersByTimeAsync(1_000);
    probe.begin();
    answer(await new Connection().info());
    await early;
    expect(probe.isFit).toBe(true);
  });
});
