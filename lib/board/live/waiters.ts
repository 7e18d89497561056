import type { KeyWaiter } from '../../core/ports.js';
import type { WaiterRow } from './messages.js';

/**
 * Returns all waiters of one lock, in the order of their arrival.
 *
 * @param calls - the waiting calls of this process, in order
 * @param queue - the queue in the store, where all calls of a process in one mode are one waiter
 * @param process - the name of this process in the queue; `npx nestjs-redlock board` has none
 */
export function waitersOf(
  calls: readonly WaiterRow[],
  queue: readonly KeyWaiter[],
  process: string | undefined,
): readonly WaiterRow[] {
  if (queue.length === 0) return calls;
  const modes = new Set(calls.map(({ mode }) => mode));
  const rows = queue
    .filter((waiter) => waiter.process !== process || !modes.has(waiter.mode))
    .map((waiter): WaiterRow => {
      const { owner, since, mode } = waiter;
      return { owner, since, mode, ...(waiter.process === process && { own: true }) };
    });
  for (const call of calls) {
    const after = rows.findIndex(({ since }) => since > call.since);
    rows.splice(after === -1 ? rows.length : after, 0, call);
  }
  return rows;
}
