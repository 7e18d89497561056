import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

export const LOOPBACK = '127.0.0.1';

/**
 * Below the range that Linux (32768 and up) and macOS (49152 and up) use for outgoing connections. A port
 * that `listen(0)` hands out lies inside it: while a killed server is down, a client that reconnects again
 * and again can then be given the server's own port and connect to itself, and the restart finds its port taken.
 */
const FIRST_PORT = 20_000;
const LAST_PORT = 32_000;

/**
 * Workers of Jest have ports of their own: one on which a test wants nobody to answer, or a server to be back in a
 * moment, is not given to a server of another test meanwhile.
 */
const SHARES = 4;
const SHARE = (LAST_PORT - FIRST_PORT) / SHARES;
const FIRST_OF_OURS = FIRST_PORT + (Number(process.env['JEST_WORKER_ID'] ?? 0) % SHARES) * SHARE;

/** No port is given twice: the one who has it may not listen yet, or be down for a moment. */
const given = new Set<number>();

/** A port nobody listens on now. Another process may take it before the caller does: retry then. */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const port = randomInt(FIRST_OF_OURS, FIRST_OF_OURS + SHARE);
    if (given.has(port)) continue;
    given.add(port);
    if (await canListen(port)) return port;
  }
  throw new Error(`found no free port between ${FIRST_OF_OURS} and ${FIRST_OF_OURS + SHARE}`);
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, LOOPBACK, () => server.close(() => resolve(true)));
  });
}
