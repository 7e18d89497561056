import { once } from 'node:events';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import type { RegisterReport } from './judge.js';

// The resource that the lock protects, in a process of its own: a counter that rejects lower tokens (J4). It prints
// the port that it listens on.

/** What the register is asked, and what it answers. */
export type RegisterRequest =
  /** What does the register hold? From now on it rejects tokens that are lower. */
  | { readonly ask: 'read'; readonly token: number }
  | { readonly ask: 'write'; readonly token: number; readonly value: number }
  | { readonly ask: 'report' };

export type RegisterAnswer =
  { readonly accepted: false } | { readonly accepted: true; readonly value: number } | RegisterReport;

let highest = 0;
let counter = 0;
const tokens: number[] = [];

function answer(request: RegisterRequest): RegisterAnswer {
  if (request.ask === 'report') return { accepted: tokens.length, counter, tokens };
  if (request.token < highest) return { accepted: false };
  // Reading counts as well: who read must not find that a stale holder has written since.
  highest = request.token;
  if (request.ask === 'write') {
    counter = request.value;
    tokens.push(request.token);
  }
  return { accepted: true, value: counter };
}

const server = createServer((socket) => {
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  const requests = createInterface({ input: socket });
  // A client that is killed resets its connection; without a listener the register would die of it.
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
// It ends with the test that started it.
process.stdin.on('end', () => process.kill(process.pid)).resume();
