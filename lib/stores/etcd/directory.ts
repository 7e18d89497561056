import type { HeldKey, KeyState, KeyWaiter } from '../../core/ports.js';
import type { EtcdLeases } from './etcd-leases.js';
import { type KeyView, viewOf } from './key-view.js';
import { holdersOf, type Names, parseEntryName, queueOf } from './names.js';
import { deletedAt, entriesAt, get, remove } from './protocol.js';
import { asKeyHolder } from './refusals.js';
import type { TxnRunner } from './txn-runner.js';

/** The number of keys in one transaction. */
const PAGE = 100;

/** The number of names in a page of a scan; names of waiters and ticks are among them. */
const NAMES_OF_PAGE = 1_000;

/** Largest number of waiters of a key in one answer. */
const MOST_OF_QUEUE = 100;

const LIMIT_MS = 10_000;

export interface DirectoryContext {
  readonly transactions: TxnRunner;
  readonly leases: EtcdLeases;
  readonly names: Names;
}

/** Reads the holders of keys, and ends their locks by force. */
export class Directory {
  constructor(private readonly context: DirectoryContext) {}

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    const { transactions, leases, names } = this.context;
    const views: KeyView[] = [];
    for (let start = 0; start < keys.length; start += PAGE) {
      const page = keys.slice(start, start + PAGE).map((key) => names.of(key));
      const reply = await transactions.run({ success: page.map((key) => get(holdersOf(key))) }, LIMIT_MS);
      page.forEach((key, index) => views.push(viewOf(key, entriesAt(reply, index))));
    }
    const held = views.flatMap(({ holders }) => holders);
    if (held.length === 0) return keys.map(() => undefined);
    const left = await leases.left(
      held.map(({ etcdLease }) => etcdLease),
      LIMIT_MS,
    );
    return views.map((view) => stateOf(view, left));
  }

  async waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    const { transactions, names } = this.context;
    const queues: KeyWaiter[][] = [];
    for (let start = 0; start < keys.length; start += PAGE) {
      const page = keys.slice(start, start + PAGE).map((key) => names.of(key));
      const ranges = page.map((key) => get(queueOf(key), { limit: MOST_OF_QUEUE }));
      const reply = await transactions.run({ success: ranges }, LIMIT_MS);
      page.forEach((key, index) => {
        const { waiters } = viewOf(key, entriesAt(reply, index));
        queues.push(
          waiters.map(({ name, owner, kind: { mode } }) => ({ ...parseEntryName(key, name), owner, mode })),
        );
      });
    }
    return queues;
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    const { transactions, names } = this.context;
    const [first, end] = names.beginningWith(prefix);
    for (let from = first; ;) {
      const range = get([from, end], { keys_only: true, limit: NAMES_OF_PAGE });
      const found = entriesAt(await transactions.run({ success: [range] }, LIMIT_MS), 0).map(
        ({ key }) => key,
      );
      const keys = found.map((name) => names.heldKey(name)).filter((key) => key !== undefined);
      yield [...new Set(keys)];
      if (found.length < NAMES_OF_PAGE) return;
      from = `${found.at(-1)}\0`;
    }
  }

  async forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    const { transactions, names } = this.context;
    const stored = names.of(key);
    const look = await transactions.run({ success: [get(holdersOf(stored))] }, LIMIT_MS);
    const named = viewOf(stored, entriesAt(look, 0)).holders.filter(({ id }) => ids.includes(id));
    const ended: string[] = [];
    for (let start = 0; start < named.length; start += PAGE) {
      const page = named.slice(start, start + PAGE);
      const reply = await transactions.run({ success: page.map(({ name }) => remove(name)) }, LIMIT_MS, true);
      page.forEach(({ id }, index) => {
        if (deletedAt(reply, index) > 0) ended.push(id);
      });
    }
    return ended;
  }
}

function stateOf({ holders }: KeyView, left: ReadonlyMap<string, number>): HeldKey | undefined {
  const live = holders
    // If the holders have many etcd leases, `left` has the remaining time of only some of these leases.
    .map((holder) => asKeyHolder(holder, left.get(holder.etcdLease) ?? Infinity))
    .filter(({ remaining }) => remaining > 0)
    .toSorted((a, b) => a.remaining - b.remaining);
  const [first] = live;
  if (!first) return undefined;
  const { mode } = first;
  if (mode !== 'permits') return { mode, holders: live };
  return { mode, permits: Math.max(...holders.map(({ permits }) => permits)), holders: live };
}
