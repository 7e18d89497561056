import { computed, signal } from '@preact/signals';
import type { LockRow } from '../../lib/board/live/messages.js';
import { locks } from './connection.js';

export type State = 'all' | 'waited' | 'shared' | 'permits' | 'own' | 'ends' | 'broken';
export type Order = 'key' | 'owner' | 'since' | 'ends' | 'waiters';

// The filters and the order of the list.

/** The entered text of the search. */
export const search = signal('');
export const prefix = signal('');
export const owner = signal('');
export const state = signal<State>('all');
export const order = signal<Order>('key');

/** The number of filters besides the search that are set. */
export const filterCount = computed(
  () => Number(prefix.value !== '') + Number(owner.value !== '') + Number(state.value !== 'all'),
);

export function clearFilters(): void {
  prefix.value = '';
  owner.value = '';
  state.value = 'all';
}

const STATES: Readonly<Record<State, (row: LockRow) => boolean>> = {
  all: () => true,
  waited: ({ waiters }) => waiters.length > 0,
  shared: ({ mode }) => mode === 'shared',
  permits: ({ mode }) => mode === 'permits',
  own: ({ holders, waiters }) => holders.some(({ own }) => own) || waiters.some(({ own }) => own),
  ends: ({ holders }) => holders.some(({ ends }) => ends === null),
  broken: ({ mode }) => mode === null,
};

/** The value by which rows are sorted, for each order. Rows with equal values are sorted by their keys. */
const ORDERS: Readonly<Record<Exclude<Order, 'key'>, (row: LockRow) => number | string>> = {
  owner: ({ holders }) => holders[0]?.owner ?? '',
  since: ({ holders }) => Math.min(...holders.map(({ since }) => since)),
  ends: ({ holders }) => holders[0]?.ends ?? Infinity,
  waiters: ({ waiters, moreWaiters = 0 }) => -waiters.length - moreWaiters,
};

/** The locks that match the filters, in the chosen order. */
export const shown = computed<readonly LockRow[]>(() => {
  const text = search.value.toLowerCase();
  const name = owner.value.toLowerCase();
  const fits = STATES[state.value];
  const found = [...locks.value.values()].filter(
    (row) =>
      fits(row) &&
      row.key.startsWith(prefix.value) &&
      (text === '' || row.key.toLowerCase().includes(text) || isOf(row, text)) &&
      (name === '' || isOf(row, name)),
  );
  const byKey = (a: LockRow, b: LockRow): number => (a.key < b.key ? -1 : a.key > b.key ? 1 : a.n - b.n);
  if (order.value === 'key') return found.sort(byKey);
  const by = ORDERS[order.value];
  return found
    .map((row) => [by(row), row] as const)
    .sort(([a, one], [b, other]) => (a < b ? -1 : a > b ? 1 : byKey(one, other)))
    .map(([, row]) => row);
});

function isOf({ holders, waiters }: LockRow, name: string): boolean {
  return (
    holders.some((holder) => holder.owner.toLowerCase().includes(name)) ||
    waiters.some((waiter) => waiter.owner.toLowerCase().includes(name))
  );
}
