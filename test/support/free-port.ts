import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

export const LOOPBACK = '127.0.0.1';

/**
 * Linux takes the ports of outgoing connections from 32768 and up, macOS from 49152 and up. A client that reconnects to a
 * killed server can be given such a port as its own. A server on one of them would find its port taken when it restarts,
 * or the client would connect to itself. Hence these ports are lower, by another 10,000: a server of a Redis Cluster
 * listens on its port + 10000, too.
 */
const FIRST_PORT = 10_000;
const LAST_PORT = 20_000;

/**
 * Number of parts into which the ports are divided. Each worker of Jest has a part of its own, and processes without Jest
 * have another one. A test may want nobody to answer on a port, or restart a server on a port: a test of another worker
 * must not take that port meanwhile.
 */
export const PORT_SHARES = 8;
const SHARE = (LAST_PORT - FIRST_PORT) / PORT_SHARES;

/** Ports that were given by this process. A port is given once: the caller may not listen yet, or may be down for a moment. */
const given = new Set<number>();

/** Ports of a worker of Jest: the first one, and the one behind the last one. The worker 0 stands for a process without Jest. */
export function portsOf(worker: number): readonly [first: number, end: number] {
  const first = FIRST_PORT + (worker % PORT_SHARES) * SHARE;
  return [first, first + SHARE];
}

/** Finds a port on which nobody listens now. A process outside the tests may take the port before the caller does. */
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
