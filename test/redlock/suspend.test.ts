import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { afterEach, beforeAll, expect, test } from '@jest/globals';
import { buildClockShim } from '../faults/clock-shim.js';
import { bundled } from '../support/bundle.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';

// A suspend and a pause as a process sees them: after a suspend its wall clock is ahead of its monotonic clock, after a
// pause of both clocks the server's clock is ahead of both.

/** Longer than the ttl of the lock. */
const ASLEEP_MS = 12_000;

/** Milliseconds between two lines of the process, by which the tests count the time for which it has run. */
const BEAT_MS = 250;

/**
 * Half a second after the end of the suspend (S29), a beat that was on its way, and one that was due. A process that a busy
 * machine does not run makes no beats, so they do not count for it.
 */
const TOLD_WITHIN_BEATS = 4;

const clock = buildClockShim();
const serverClock = buildClockShim();
let file: string;
let child: ChildProcess | undefined;
let server: RedisServer | undefined;
let lines: string[];

beforeAll(async () => {
  file = await bundled('test/fixtures/sleeping-holder.ts');
});
afterEach(async () => {
  child?.kill('SIGKILL');
  await server?.stop();
});

if (typeof clock === 'string' || typeof serverClock === 'string') {
  test(`a suspend is not tested: ${String(clock)}`, () => expect(clock).toContain(' '));
} else {
  const hold = async (renew: boolean): Promise<ChildProcess> => {
    clock.shift(0);
    serverClock.shift(0);
    server = await startRedis({ env: serverClock.env });
    const env = { ...process.env, ...clock.env, REDIS_URL: server.url, RENEW: String(renew) };
    const holder = spawn(process.execPath, [file], { env, stdio: ['pipe', 'pipe', 'inherit'] });
    child = holder;
    lines = [];
    createInterface({ input: holder.stdout }).on('line', (line) => lines.push(line));
    await until(() => lines.includes('acquired'));
    return holder;
  };
  /** Waits until timers that look every {@link BEAT_MS} have looked twice. At the end no earlier line is on its way. */
  const beats = async (): Promise<void> => {
    const after = lines.length + 4;
    await until(() => lines.length >= after);
  };
  /** Resolves to the number of beats of the process from now until it is told. */
  const beatsUntilTold = async (): Promise<number> => {
    const since = lines.length;
    await until(() => lines.includes('lost'));
    return lines.slice(since, lines.indexOf('lost')).filter((line) => line === 'beat').length;
  };

  test.each([true, false])(
    'a process is told soon after a suspend that its lock was lost (`renew: %p`, S29)',
    async (renew) => {
      await hold(renew);
      await beats();
      clock.shift(ASLEEP_MS);
      expect(await beatsUntilTold()).toBeLessThanOrEqual(TOLD_WITHIN_BEATS);
    },
  );

  test.each([true, false])(
    'a process whose clock was set back is told soon after a suspend that its lock was lost (`renew: %p`, S11)',
    async (renew) => {
      await hold(renew);
      clock.shift(-3_600_000);
      await beats();
      expect(lines).not.toContain('lost');
      clock.shift(-3_600_000 + ASLEEP_MS);
      expect(await beatsUntilTold()).toBeLessThanOrEqual(TOLD_WITHIN_BEATS);
    },
  );

  test('after a pause of both clocks, a process is told with the reply to its next request, which is not affected (S29)', async () => {
    const holder = await hold(false);
    serverClock.shift(ASLEEP_MS);
    await beats();
    expect(lines).not.toContain('lost');
    holder.stdin?.write('\n');
    await until(() => lines.some((line) => line.endsWith('other')));
    expect(lines.filter((line) => line !== 'beat')).toEqual(['acquired', 'lost', 'acquired other']);
  });

  test('after a pause of both clocks, a process is told with the reply to the next renewal (S29)', async () => {
    await hold(true);
    await beats();
    serverClock.shift(ASLEEP_MS);
    // The renewal comes within a third of the ttl.
    expect(await beatsUntilTold()).toBeLessThanOrEqual(3_333 / BEAT_MS + TOLD_WITHIN_BEATS);
  });
}
