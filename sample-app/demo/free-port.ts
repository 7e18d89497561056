import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Linux takes the ports of outgoing connections from 32768 up, macOS from 49152 up. The ports here are lower: a client
 * that reconnects to a stopped server could otherwise get the port of that server.
 */
const FIRST_PORT = 20_000;
const LAST_PORT = 32_000;

/** Returns a port of the loopback interface on which nobody listens now. */
export async function freePort(): Promise<number> {
  for (let attempt = 1; ; attempt++) {
    const port = randomInt(FIRST_PORT, LAST_PORT);
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
      server.close();
      await once(server, 'close');
      return port;
    } catch (error) {
      if (attempt === 100) throw error;
    }
  }
}
