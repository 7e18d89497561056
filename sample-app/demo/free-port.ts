import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Below the range from which Linux (32768 and up) and macOS (49152 and up) take the ports of outgoing connections: a
 * client that reconnects to a server that is down could otherwise be given that server's own port.
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
