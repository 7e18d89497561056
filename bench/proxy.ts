import { connect, createServer, type Socket } from 'node:net';
import type { AddressInfo, Server } from 'node:net';

// A process of its own between clients and servers, which delays what goes through.

/** What the parent asks for; the answer is the ports to connect to, or that it is done. */
export type ProxyRequest =
  | { readonly id: number; readonly job: 'serve'; readonly ports: readonly number[] }
  | { readonly id: number; readonly job: 'delay'; readonly ms: number };

const HOST = '127.0.0.1';

/** What is under way, in the order in which it is due: every piece is delayed alike. */
const pieces: { readonly to: Socket; readonly data: Buffer; readonly due: number }[] = [];
let delay = 0;

function pass(from: Socket, to: Socket): void {
  from.setNoDelay(true);
  from.on('data', (data) => {
    pieces.push({ to, data, due: performance.now() + delay });
    if (pieces.length === 1) setImmediate(forward);
  });
  from.on('error', () => undefined);
  from.on('close', () => to.destroy());
}

/** Comes back at once, after a look at the sockets: timers of Node, which sleep, are right to a millisecond only. */
function forward(): void {
  for (let first = pieces[0]; first && first.due <= performance.now(); first = pieces[0]) {
    pieces.shift();
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
  delay = request.ms;
  return undefined;
}

process.once('disconnect', () => process.exit());
process.on('message', (request: ProxyRequest) => {
  void answer(request).then((result) => process.send?.({ id: request.id, result }));
});
