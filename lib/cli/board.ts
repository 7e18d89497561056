import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { asError } from '../core/errors.js';
import { BoardServer, refuse } from '../board/live/board-server.js';
import { History } from '../board/live/history.js';
import { LiveLocks, type LockSource } from '../board/live/live-locks.js';
import { whyNotLoopback } from '../board/live/own-page.js';
import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { quoted } from '../core/printable.js';
import type { Session } from './session.js';
import { print, type Terminal } from './terminal.js';
import { UsageError } from './usage-error.js';
import { userName } from './user-name.js';

/** The ids of the locks that this process holds: none. */
const NOTHING: ReadonlySet<string> = new Set();

/** Size limit of a request body from the page, in bytes. A request from the page contains a number and ids. */
const LONGEST_BODY = 1_024 * 1_024;

/**
 * Serves the board on the loopback interface until the signal of the terminal aborts.
 *
 * @throws UsageError when the port is in use
 */
export async function board(
  { inspection }: Session,
  { port, allowRelease }: RequestFor<'board'>,
  terminal: Terminal,
): Promise<number> {
  const source: LockSource = {
    list: () => inspection.list(),
    checkNodes: () => inspection.checkNodes(),
    waiting: (keys) => inspection.waiting(keys),
    campaigns: () => [],
    heldIds: () => NOTHING,
    async forceRelease(key, { id }) {
      const released = await inspection.forceRelease(key, { id });
      if (released) print(terminal, `${new Date().toISOString()}  ended a holder of ${quoted([key])}`);
      return released;
    },
  };
  const about = { allowForceRelease: allowRelease, declared: [] };
  const locks = new LiveLocks(source, about, new History(), undefined);
  const pages = new BoardServer(locks, allowRelease);
  const server = createServer((request, response) => {
    answer(pages, request, response).catch((error: unknown) => {
      if (response.headersSent) response.destroy();
      else refuse(response, 500, asError(error).message);
    });
  });
  await listen(server, port);
  const { port: given } = server.address() as AddressInfo;
  print(terminal, `Board: http://127.0.0.1:${given}/   Ctrl-C ends`);
  await new Promise<void>((resolve) => {
    if (terminal.signal.aborted) return resolve();
    terminal.signal.addEventListener('abort', () => resolve(), { once: true });
  });
  pages.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  return ExitCode.Ok;
}

async function listen(server: Server, port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(
        error.code === 'EADDRINUSE'
          ? new UsageError(`Port ${port} is in use. Write another port after --port, or leave out --port`)
          : error,
      );
    });
    server.listen(port, '127.0.0.1', resolve);
  });
}

async function answer(pages: BoardServer, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const foreign = whyNotLoopback(request);
  if (foreign !== undefined) return refuse(response, 403, foreign);
  const { method, url = '/' } = request;
  const file = url.replace(/^\//, '').replace(/\?.*$/s, '');
  if (method === 'GET' || method === 'HEAD') return pages.get({ request, response }, url, file);
  if (method !== 'POST' || file !== 'release')
    return refuse(response, 405, 'The board does not accept this request.');
  const body = await jsonOf(request);
  await pages.release({ request, response }, body, async () => userName());
}

/** Parsed body; `undefined` when it is too long or not JSON. */
async function jsonOf(request: IncomingMessage): Promise<unknown> {
  let text = '';
  request.setEncoding('utf8');
  try {
    for await (const chunk of request) {
      text += chunk as string;
      if (text.length > LONGEST_BODY) return undefined;
    }
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
