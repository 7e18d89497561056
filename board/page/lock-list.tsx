import { useComputed, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { LockRow } from '../../lib/board/live/messages.js';
import { now } from './connection.js';
import { shown } from './filter.js';
import { duration } from './format.js';
import { Text } from './text.js';

/** Number of hidden rows that are rendered above and below the visible rows, so that scrolling shows no gap. */
const BESIDE = 8;

const NARROW = matchMedia('(max-width: 700px)');

/** Shows the locks in a table. Only rows near the visible part are rendered: ten thousand locks are as quick as ten. */
export function LockList({ chosen, choose }: { chosen: number | undefined; choose: (n: number) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const narrow = useSignal(NARROW.matches);
  const view = useSignal({ top: 0, height: 600 });
  useEffect(() => {
    const changed = () => {
      narrow.value = NARROW.matches;
      const { scrollTop: top = 0, clientHeight: height = 0 } = box.current ?? {};
      view.value = { top, height };
    };
    const observer = new ResizeObserver(changed);
    if (box.current) observer.observe(box.current);
    NARROW.addEventListener('change', changed);
    changed();
    return () => {
      observer.disconnect();
      NARROW.removeEventListener('change', changed);
    };
  }, []);
  const rowHeight = useComputed(() => (narrow.value ? 62 : 38));
  const first = Math.max(0, Math.floor(view.value.top / rowHeight.value) - BESIDE);
  const count = Math.ceil(view.value.height / rowHeight.value) + 2 * BESIDE;
  const rows = shown.value.slice(first, first + count);

  const move = (event: KeyboardEvent): void => {
    const steps: Readonly<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    const step = steps[event.key];
    const current = (event.target as HTMLElement).closest<HTMLElement>('[data-index]');
    if (step === undefined || !current || !box.current) return;
    event.preventDefault();
    const next = Math.min(Math.max(Number(current.dataset['index']) + step, 0), shown.value.length - 1);
    const top = next * rowHeight.value;
    const { scrollTop, clientHeight } = box.current;
    if (top < scrollTop) box.current.scrollTop = top;
    else if (top + rowHeight.value > scrollTop + clientHeight)
      box.current.scrollTop = top + rowHeight.value - clientHeight;
    requestAnimationFrame(() =>
      box.current?.querySelector<HTMLElement>(`[data-index="${next}"] button`)?.focus(),
    );
  };

  return (
    <div class="list" role="table" aria-label="Locks" aria-rowcount={shown.value.length + 1}>
      <div role="rowgroup">
        <div class="row head" role="row" aria-rowindex={1}>
          {['Key', 'Kind', 'Owner', 'Held for', 'Left', 'Waiting', 'Token'].map((name) => (
            <span role="columnheader" key={name} class={name.toLowerCase().replace(' ', '-')}>
              {name}
            </span>
          ))}
        </div>
      </div>
      <div
        class="rows"
        role="rowgroup"
        tabIndex={0}
        aria-label="Locks that match"
        ref={box}
        onKeyDown={move}
        onScroll={({ currentTarget: { scrollTop: top, clientHeight: height } }) =>
          (view.value = { top, height })
        }
      >
        <div
          role="presentation"
          class="space"
          style={{ height: `${shown.value.length * rowHeight.value}px` }}
        >
          {rows.map((row, index) => (
            <Row
              key={row.n}
              row={row}
              index={first + index}
              top={(first + index) * rowHeight.value}
              isChosen={row.n === chosen}
              choose={choose}
            />
          ))}
        </div>
        {shown.value.length === 0 && (
          <div role="row">
            <div role="cell" class="empty">
              No lock matches.
            </div>
          </div>
        )}
      </div>
    </div>
  );
}

interface RowProps {
  readonly row: LockRow;
  readonly index: number;
  readonly top: number;
  readonly isChosen: boolean;
  readonly choose: (n: number) => void;
}

function Row({ row, index, top, isChosen, choose }: RowProps) {
  const { key, length, holders, more = 0, waiters } = row;
  const [holder] = holders;
  const others = holders.length + more - 1;
  const [firstWaiter] = waiters;
  return (
    <div
      class={`row${isChosen ? ' chosen' : ''}`}
      role="row"
      aria-rowindex={index + 2}
      data-index={index}
      style={{ transform: `translateY(${top}px)` }}
    >
      <span role="cell" class="key">
        <button type="button" aria-expanded={isChosen} onClick={() => choose(row.n)}>
          <Text of={key} cut={length !== undefined} />
        </button>
      </span>
      <span role="cell" class="kind">
        <Kind row={row} />
      </span>
      <span role="cell" class="owner">
        {holder ? <Text of={holder.owner} /> : 'no quorum'}
        {others > 0 && ` and ${others} more`}
        {holder?.own && <span class="badge">here</span>}
      </span>
      <span role="cell" class="held-for">
        {holder && <Since at={Math.min(...holders.map(({ since }) => since))} />}
      </span>
      <span role="cell" class="left">
        {holder && <Left ends={holder.ends} />}
      </span>
      <span role="cell" class="waiting">
        {firstWaiter && (
          <span class="badge waits-badge">
            {waitersOf(row)} for <Since at={firstWaiter.since} />
          </span>
        )}
      </span>
      <span role="cell" class="token">
        {holder?.token ?? ''}
      </span>
    </div>
  );
}

/**
 * Shows the mode of a lock; for permits, the number of held permits; without a quorum, the number of nodes that have
 * the lock.
 */
export function Kind({ row: { mode, permits, holders, more = 0, nodes } }: { row: LockRow }) {
  if (mode === null) return <span class="badge bad">{`on ${nodes[0]} of ${nodes[1]} nodes`}</span>;
  if (permits !== undefined) return <span class="badge">{`${holders.length + more} of ${permits}`}</span>;
  return <span class="badge">{mode === 'shared' ? `shared, ${holders.length + more}` : mode}</span>;
}

/** Number of waiters for a lock. A waiter is a call of this process, or another process that waits. */
export function waitersOf({ waiters, moreWaiters = 0 }: LockRow): number {
  return waiters.length + moreWaiters;
}

/** Shows the time since a moment. */
export function Since({ at }: { at: number }) {
  return <span class="time">{duration(now.value - at)}</span>;
}

/** Shows the time until the end of a lock, if it is not extended. */
export function Left({ ends }: { ends: number | null }) {
  if (ends === null) return <span class="time bad">no expiry</span>;
  return <span class="time">{duration(Math.max(0, ends - now.value))}</span>;
}
