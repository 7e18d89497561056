import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

export const LOOPBACK = '127.0.0.1';

/**
 * Linux takes the ports of outgoing connections from 32768 up, macOS from 49152 up. A client that reconnects to a
 * killed server can get the port of that server as its own port: then the client connects to itself, or the restarted
 * server finds its port taken. So the ports here are lower. They are lower by another 10,000, because a server of a
 * Redis Cluster also listens on its port + 10000.
 */
const FIRST_PORT = 10_000;
const LAST_PORT = 20_000;

/**
 * Number of parts into which these ports are divided. Each worker of Jest has its own part, and processes without Jest
 * share another part. A test may need a port on which nobody answers, or restart a server on a port: a test of another
 * worker must not take that port.
 */
export const PORT_SHARES = 8;
const SHARE = (LAST_PORT - FIRST_PORT) / PORT_SHARES;

/**
 * Ports that `freePort` has returned. It returns each port only once. A caller needs its port even while nobody listens
 * on it: before the server starts, and during a restart.
 */
const given = new Set<number>();

/**
 * Returns the ports of a worker of Jest: the first port, and the port after the last one. Number 0 is for processes
 * without Jest.
 */
export function portsOf(worker: number): readonly [first: number, end: number] {
  const first = FIRST_PORT + (worker % PORT_SHARES) * SHARE;
  return [first, first + SHARE];
}

/** Returns a port on which nobody listens now. A process outside the tests may take the port before the caller does. */
export async function freePort(): Promise<number> {
  const [first, end] = portsOf(Number(process.env['JEST_WORKER_ID'] ?? 0));
  for (let attempt = 0; attempt < 100; attempt++) {
    const port = randomInt(first, end);
    if (given.has(port)) continue;
    given.add(port);
    if (await canListen(port)) return port;
  }
  throw new Error(`found no free port between ${first} and ${end}`);
}

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, LOOPBACK, () => server.close(() => resolve(true)));
  });
}
