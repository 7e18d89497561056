import type { KeyWaiter } from '../../core/ports.js';
import type { PresentWaiter } from '../../core/admission.js';
import { permitsOf } from '../../core/admission.js';
import type { LockKind, LockMode } from '../../core/lock-mode.js';
import type { WaiterId } from '../../core/waiter-id.js';

/** The node in which the store keeps its nodes. */
export const ROOT = '/nestjs-redlock';

/** The node whose children are the keys. */
export const LOCKS = `${ROOT}/locks`;

/** The node whose children are the queues of the keys. */
export const QUEUES = `${ROOT}/queues`;

/** The node that a process writes to read the leader's clock. */
export const CLOCK = `${ROOT}/clock`;

/** The node whose version changes whenever nodes of keys are deleted. */
export const GENERATION = `${ROOT}/generation`;

/** All nodes that must exist before the first lock. */
export const FIXED = [ROOT, LOCKS, QUEUES, CLOCK, GENERATION] as const;

/** Digits of a time in the name of a queue entry, so that names sort like the times. */
const TIME_DIGITS = 15;

const LETTERS: Readonly<Record<LockMode, string>> = { exclusive: 'e', shared: 's', permits: 'p' };

/** A waiter's entry in the queue of a key. */
export interface WaiterEntry extends PresentWaiter, KeyWaiter {}

/** The names of the nodes of a module. */
export class Names {
  constructor(private readonly keyPrefix: string) {}

  /**
   * The name of a key's node. The letter before the name keeps it from being `.`, `..` or empty. As in Redis, half of a
   * surrogate pair is stored as U+FFFD.
   */
  nodeOf(key: string): string {
    return `k${encoded(this.keyPrefix + key)}`;
  }

  pathOf(key: string): string {
    return `${LOCKS}/${this.nodeOf(key)}`;
  }

  queueOf(key: string): string {
    return `${QUEUES}/${this.nodeOf(key)}`;
  }

  /**
   * The key of a node, by its name among the children of {@link LOCKS}; `undefined` for a node of another module or
   * program.
   */
  keyOf(name: string): string | undefined {
    const text = decoded(name.slice(1));
    if (!text?.startsWith(this.keyPrefix)) return undefined;
    const key = text.slice(this.keyPrefix.length);
    return this.nodeOf(key) === name ? key : undefined;
  }
}

/** The name of the node of a key, from the path of this node, of its queue, or of an entry in the queue. */
export function nodeIn(path: string): string {
  return path.slice(ROOT.length + 1).split('/')[1] ?? '';
}

export function waiterName({ process, number }: Pick<WaiterId, 'process' | 'number'>): string {
  return `${process}:${number}`;
}

/** @param since - the time of the arrival, in milliseconds since 1970 */
export function entryOf(waiter: WaiterId, kind: LockKind, since: number): WaiterEntry {
  const { process, number, owner } = waiter;
  const time = Math.max(0, Math.floor(since));
  const name = [
    String(time).padStart(TIME_DIGITS, '0'),
    `${LETTERS[kind.mode]}${permitsOf(kind) || ''}`,
    ...[process, number, encoded(owner)],
  ].join('-');
  return { name, waiter: waiterName(waiter), kind, process, number, owner, since: time, mode: kind.mode };
}

/** The entries of a queue in their order, from the names of their nodes. Leaves out nodes of other programs. */
export function entriesIn(names: readonly string[]): readonly WaiterEntry[] {
  return names
    .toSorted()
    .map(parsedEntry)
    .filter((entry) => entry !== undefined);
}

function parsedEntry(name: string): WaiterEntry | undefined {
  const [, time, letter, permits, process, number, rest] =
    /^(\d+)-([esp])(\d*)-([^-]+)-(\d+)-(.*)$/.exec(name) ?? [];
  const owner = decoded(rest ?? '');
  if (process === undefined || owner === undefined) return undefined;
  const mode = letter === 'e' ? 'exclusive' : letter === 's' ? 'shared' : 'permits';
  const kind: LockKind = mode === 'permits' ? { mode, permits: Number(permits) } : { mode };
  const id = { process, number: Number(number) };
  return { name, waiter: waiterName(id), kind, ...id, owner, since: Number(time), mode };
}

function encoded(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
