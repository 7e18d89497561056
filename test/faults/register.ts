import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { type Access, excludes, partOf, type RegisterReport } from './access.js';

// The register is the resource that the locks protect. The register runs as its own process and prints its port. Each key
// has a counter, which exclusive holders change and readers read. Each slot of a key has a counter of its own. The
// register rejects lower tokens (J4).

/** A request to the register. */
export type RegisterRequest =
  /** Reads the counter. Afterwards the register rejects lower tokens of holders that this access excludes. */
  | { readonly ask: 'read'; readonly key: string; readonly access: Access }
  | { readonly ask: 'write'; readonly key: string; readonly access: Access; readonly value: number }
  | { readonly ask: 'report' };

export type RegisterAnswer =
  { readonly accepted: false } | { readonly accepted: true; readonly value: number } | RegisterReport;

interface OfKey {
  /** The access with the highest token, for each part of the key. */
  readonly highest: Map<string, Access>;
  readonly accesses: Access[];
  readonly parts: Map<string, { accepted: number; counter: number }>;
}

const keys = new Map<string, OfKey>();

function answer(request: RegisterRequest): RegisterAnswer {
  if (request.ask === 'report') return report();
  const { key, access } = request;
  let ofKey = keys.get(key);
  if (!ofKey) keys.set(key, (ofKey = { highest: new Map(), accesses: [], parts: new Map() }));
  // S21: the token of a write is compared with every access, the token of a read with every access except reads, and
  // the token of a permit with every access except permits of other slots.
  for (const seen of ofKey.highest.values()) {
    if (excludes(seen, access) && access.token < seen.token) return { accepted: false };
  }
  // Reads count as well: a stale holder must not write after a newer holder's read.
  const part = partOf(access);
  if (access.token >= (ofKey.highest.get(part)?.token ?? 0)) ofKey.highest.set(part, access);
  ofKey.accesses.push(access);
  // Readers read the counter of the exclusive holders.
  const name = access.mode === 'shared' ? 'exclusive' : part;
  let counted = ofKey.parts.get(name);
  if (!counted) ofKey.parts.set(name, (counted = { accepted: 0, counter: 0 }));
  if (request.ask === 'write') {
    counted.counter = request.value;
    counted.accepted++;
  }
  return { accepted: true, value: counted.counter };
}

function report(): RegisterReport {
  return [...keys].map(([key, { accesses, parts }]) => ({
    key,
    accesses,
    parts: [...parts].map(([name, counted]) => ({ name, ...counted })),
  }));
}

const server = createServer((socket) => {
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  const requests = createInterface({ input: socket });
  // A killed client resets its connection. Without a listener, that error would end the register.
  requests.on('error', () => socket.destroy());
  requests.on('line', (line) => {
    socket.write(`${JSON.stringify(answer(JSON.parse(line) as RegisterRequest))}\n`);
  });
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const address = server.address();
if (address === null || typeof address === 'string') throw new Error('the register has no port');
process.stdout.write(`${address.port}\n`);
// The register ends with the test that started it.
process.stdin.on('end', () => process.kill(process.pid)).resume();
