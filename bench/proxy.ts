import { connect, createServer, type Socket } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import TinyQueue from 'tinyqueue';

// A process between clients and servers that delays messages.

/** Requests of the parent process. The answer is a list of ports, or an acknowledgement. */
export type ProxyRequest =
  | { readonly id: number; readonly job: 'serve'; readonly ports: readonly number[] }
  /** `jitter` is the average of a further random delay of each message, in milliseconds. */
  | { readonly id: number; readonly job: 'delay'; readonly ms: number; readonly jitter: number };

const HOST = '127.0.0.1';

interface Piece {
  readonly to: Socket;
  readonly data: Buffer;
  readonly due: number;
}

/** Chunks that wait for their time. */
const pieces = new TinyQueue<Piece>([], (a, b) => a.due - b.due);
let delay = 0;
let jitter = 0;
/** Milliseconds between two chunks of a connection that are due at the same time, so that they keep their order. */
const AFTER = 1e-6;

function pass(from: Socket, to: Socket): void {
  let last = 0;
  from.setNoDelay(true);
  from.on('data', (data) => {
    // No chunk overtakes another chunk of its connection.
    const due = performance.now() + delay - Math.log(1 - Math.random()) * jitter;
    last = Math.max(due, last + AFTER);
    pieces.push({ to, data, due: last });
    if (pieces.length === 1) setImmediate(forward);
  });
  from.on('error', () => undefined);
  from.on('close', () => to.destroy());
}

/**
 * Sends chunks that are due, and runs again after Node has looked at the sockets. It uses no timers, as timers of Node
 * are exact only to a millisecond.
 */
function forward(): void {
  for (let first = pieces.peek(); first && first.due <= performance.now(); first = pieces.peek()) {
    pieces.pop();
    if (first.to.writable) first.to.write(first.data);
  }
  if (pieces.length > 0) setImmediate(forward);
}

async function serve(port: number): Promise<number> {
  const listener: Server = createServer((client) => {
    const server = connect({ host: HOST, port });
    pass(client, server);
    pass(server, client);
  });
  await new Promise<void>((resolve) => listener.listen(0, HOST, resolve));
  return (listener.address() as AddressInfo).port;
}

async function answer(request: ProxyRequest): Promise<unknown> {
  if (request.job === 'serve') return Promise.all(request.ports.map(serve));
  ({ ms: delay, jitter } = request);
  return undefined;
}

process.once('disconnect', () => process.exit());
process.on('message', (request: ProxyRequest) => {
  void answer(request).then((result) => process.send?.({ id: request.id, result }));
});
