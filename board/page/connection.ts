import { signal } from '@preact/signals';
import {
  type BoardAbout,
  type BoardMessage,
  type BoardStatus,
  type HistoryEntry,
  type LockDetails,
  type LockRow,
  MOST_RELEASED,
  type PrefixHistory,
  type ReleaseReply,
  type ReleaseRequest,
} from '../../lib/board/live/messages.js';

/** URL of the folder with the page's own files. */
const BASE = new URL('.', (document.currentScript as HTMLScriptElement).src);

/**
 * Milliseconds until the page requests the stream again after a refusal. After other failures the browser itself
 * connects again.
 */
const ASK_AGAIN_MS = 5_000;

export type Connection = 'connecting' | 'live' | 'cut' | 'refused';

export const connection = signal<Connection>('connecting');
export const about = signal<BoardAbout>({ allowForceRelease: false, declared: [] });
export const status = signal<BoardStatus>({ nodes: undefined, ticks: [], campaigns: [], hasMore: false });

/** The locks by their numbers; a new map with every change. */
export const locks = signal<ReadonlyMap<number, LockRow>>(new Map());

/** The time at which the connection was lost, by the clock of the server; `undefined` while there is one. */
export const lostAt = signal<number | undefined>(undefined);

/** The present time of the server, updated a few times a second. */
export const now = signal(Date.now());

let epoch = '';
/** Milliseconds by which the clock of the server is ahead of the clock of the browser. */
let ahead = 0;

export function start(): void {
  listen();
  setInterval(() => (now.value = Date.now() + ahead), 250);
}

function listen(): void {
  const stream = new EventSource(new URL('events', BASE));
  stream.addEventListener('message', ({ data }) => {
    receive(JSON.parse(data as string) as BoardMessage);
    connection.value = 'live';
    lostAt.value = undefined;
  });
  stream.addEventListener('error', () => {
    if (connection.value === 'live') lostAt.value = now.value;
    connection.value = 'cut';
    if (stream.readyState !== EventSource.CLOSED) return;
    // The answer is no event stream: a guard has refused the request, or a proxy does not reach the server.
    connection.value = 'refused';
    setTimeout(listen, ASK_AGAIN_MS);
  });
}

function receive(message: BoardMessage): void {
  ahead = message.now - Date.now();
  now.value = message.now;
  if (message.type === 'snapshot') {
    ({ epoch } = message);
    about.value = message.about;
    status.value = message.status;
    locks.value = new Map(message.rows.map((row) => [row.n, row]));
    return;
  }
  if (message.status) status.value = message.status;
  const { rows = [], renewed = [], gone = [] } = message;
  if (rows.length + renewed.length + gone.length === 0) return;
  const changed = new Map(locks.value);
  for (const n of gone) changed.delete(n);
  for (const row of rows) changed.set(row.n, row);
  for (const [n, index, ends, renewals, ttl] of renewed) {
    const row = changed.get(n);
    const holder = row?.holders[index];
    if (!row || !holder) continue;
    const extended = { ...holder, ends, renewals, ...(ttl !== null && { ttl }) };
    changed.set(n, { ...row, holders: row.holders.with(index, extended) });
  }
  locks.value = changed;
}

/** @returns `undefined` when the server does not know the lock any more, or does not answer */
export function fetchDetails(n: number): Promise<LockDetails | undefined> {
  return get<LockDetails>('details', { epoch, n: String(n) });
}

export async function fetchHistory(prefix: string): Promise<readonly HistoryEntry[] | undefined> {
  return (await get<PrefixHistory>('history', { prefix }))?.history;
}

async function get<Answer>(file: string, parameters: Record<string, string>): Promise<Answer | undefined> {
  try {
    const response = await fetch(new URL(`${file}?${new URLSearchParams(parameters)}`, BASE));
    return response.ok ? ((await response.json()) as Answer) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Releases the lock by force for the holders with these ids, with several requests if there are many ids. Returns the
 * number of holders for which the lock was released.
 *
 * @throws Error that says why a request failed, and for how many holders the earlier requests released the lock
 */
export async function release(n: number, ids: readonly string[]): Promise<number> {
  // `n` names the lock only while the same server process runs. `epoch` identifies that process. All requests must send
  // the `epoch` of this moment, because a reconnection between two requests may change it.
  const of = { epoch, n };
  let released = 0;
  for (let from = 0; from < ids.length; from += MOST_RELEASED) {
    try {
      released += await releaseSome({ ...of, ids: ids.slice(from, from + MOST_RELEASED) });
    } catch (error) {
      if (from === 0) throw error;
      const { message } = error as Error;
      throw new Error(`Released ${released} of ${ids.length} holders. ${message}`, { cause: error });
    }
  }
  return released;
}

async function releaseSome(body: ReleaseRequest): Promise<number> {
  const response = await fetch(new URL('release', BASE), {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-redlock-board': '1' },
    body: JSON.stringify(body),
  }).catch(() => undefined);
  if (!response) throw new Error('The server does not answer.');
  const answer = (await response.json().catch(() => ({}))) as Partial<ReleaseReply> & { message?: string };
  if (!response.ok) throw new Error(answer.message ?? `The server answered ${response.status}.`);
  return answer.released ?? 0;
}
