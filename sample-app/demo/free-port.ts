import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * First port of a range below the ports of outgoing connections on Linux (32768 and up) and macOS (49152 and up). In
 * their range, a client that reconnects to a stopped server could itself get the server's port.
 */
const FIRST_PORT = 20_000;
const LAST_PORT = 32_000;

/** A port of the loopback interface that nobody listens on now. */
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
