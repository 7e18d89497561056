import { execFile } from 'node:child_process';
import { expect, test } from '@jest/globals';
import { buildClockShim } from '../../faults/clock-shim.js';
import { type FaultEvent, machineTime, parseLog } from '../../faults/events.js';
import { judge } from '../../faults/judge.js';
import { bundled } from '../../support/bundle.js';

// Rows expire by the server's clock, and deadlines are times of that clock: the clocks of clients must not matter.

const MILLISECONDS = 4_000;

const CLIENTS = ['stepped', 'right', 'right too'];

/** Shifts of the clock in milliseconds: up to an hour in both directions, and some that are near the ttl. */
const STEPS = [3_600_000, -3_600_000, 0, 900, -900, 60_000, -60_000];

/**
 * Defines the test for a database.
 *
 * @param start - starts a server, and resolves to its URL
 */
export function clientClockOn(database: string, start: () => Promise<string>): void {
  const shim = buildClockShim();
  if (typeof shim === 'string') {
    test(`jumps of a client's clock are not tested on ${database}: ${shim}`, () =>
      expect(shim).toContain(' '));
    return;
  }
  test(`locks in ${database} never overlap, and tokens grow, while the clock of one client jumps forwards and backwards`, async () => {
    const url = await start();
    const file = await bundled('test/fixtures/stepped-holder.ts');
    const running = CLIENTS.map((client) => {
      const env = {
        ...process.env,
        ...(client === 'stepped' ? shim.env : {}),
        ...{ DATABASE_URL: url, CLIENT: client, MILLISECONDS: String(MILLISECONDS) },
      };
      return new Promise<FaultEvent[]>((resolve, reject) => {
        const child = execFile(process.execPath, [file], { env, maxBuffer: 2 ** 26 }, (error, stdout) =>
          error ? reject(error) : resolve(parseLog(stdout)),
        );
        child.on('error', reject);
      });
    });
    let turn = 0;
    const stepping = setInterval(() => shim.shift(STEPS[turn++ % STEPS.length]!), 150);
    const events = (await Promise.all(running).finally(() => clearInterval(stepping))).flat();

    const { overlaps, tokenFaults, late } = judge(events, undefined, machineTime());
    expect({ overlaps, tokenFaults, late }).toEqual({ overlaps: [], tokenFaults: [], late: [] });
    const grants = (client?: string): number[] =>
      events.flatMap((event) =>
        event.event === 'return' && event.client === (client ?? event.client) ? [event.at] : [],
      );
    // On a busy machine a process may start late, so only the time counts in which all three acquire.
    const times = CLIENTS.map(grants);
    const from = Math.max(...times.map((each) => Math.min(...each)));
    const to = Math.min(...times.map((each) => Math.max(...each)));
    const together = (client?: string): number =>
      grants(client).filter((at) => at >= from && at <= to).length;
    // The client with the shifted clock acquires often enough, so the server does not treat its requests as late.
    expect(together('stepped')).toBeGreaterThanOrEqual(together() / 10);
    // When the client's clock is an hour ahead, no token comes from that clock.
    const tokens = events.flatMap((event) => (event.event === 'return' ? [event.token] : []));
    expect(Math.max(...tokens) / 2 ** 20).toBeLessThan(Date.now() / 1_000 + 60);
  });
}
