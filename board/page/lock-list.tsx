import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { LockRow } from '../../lib/board/live/messages.js';
import { holdIn } from '../../lib/core/hold-name.js';
import { printable } from '../../lib/core/printable.js';
import { connection, locks } from './connection.js';
import { shown } from './filter.js';
import { Kind, Left, Owner, Since, Waiting } from './lock-cells.js';
import { Text } from './text.js';

/** Number of hidden rows that are rendered above and below the visible rows, so that scrolling shows no gap. */
const BESIDE = 8;

const COLUMNS = ['Key', 'Kind', 'Owner', 'Held for', 'Left', 'Waiting', 'Token'] as const;

/** Shows the locks in a table. Only rows near the visible part are rendered: ten thousand locks are as quick as ten. */
export function LockList({ chosen, choose }: { chosen: number | undefined; choose: (n: number) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const head = useRef<HTMLDivElement>(null);
  const view = useSignal({ top: 0, height: 600, row: 38, head: 32 });
  const measure = (): void => {
    if (!box.current || !head.current) return;
    const { scrollTop: top, clientHeight: height } = box.current;
    // The style sheet decides by the width of the list how high the rows are, and whether they have a head.
    const row = Number.parseFloat(getComputedStyle(box.current).getPropertyValue('--row-height'));
    view.value = { top, height, row, head: head.current.offsetHeight };
  };
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (box.current) observer.observe(box.current);
    measure();
    return () => observer.disconnect();
  }, []);
  const { top: scrolled, height: visible, row: rowHeight, head: headHeight } = view.value;
  const first = Math.max(0, Math.floor(scrolled / rowHeight) - BESIDE);
  const count = Math.ceil(visible / rowHeight) + 2 * BESIDE;
  const rows = shown.value.slice(first, first + count);

  const move = (event: KeyboardEvent): void => {
    const steps: Readonly<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    const step = steps[event.key];
    const current = (event.target as HTMLElement).closest<HTMLElement>('[data-index]');
    if (step === undefined || !current || !box.current) return;
    event.preventDefault();
    const next = Math.min(Math.max(Number(current.dataset['index']) + step, 0), shown.value.length - 1);
    const [above, below] = [next * rowHeight, (next + 1) * rowHeight];
    const seen = box.current.clientHeight - headHeight;
    if (above < box.current.scrollTop) box.current.scrollTop = above;
    else if (below > box.current.scrollTop + seen) box.current.scrollTop = below - seen;
    requestAnimationFrame(() =>
      box.current?.querySelector<HTMLElement>(`[data-index="${next}"] button`)?.focus(),
    );
  };

  return (
    <div class="list-frame">
      <div
        class="list"
        role="table"
        aria-label="Locks"
        aria-rowcount={shown.value.length + 1}
        tabIndex={0}
        ref={box}
        onKeyDown={move}
        onScroll={measure}
      >
        <div role="rowgroup" class="head" ref={head}>
          <div class="row" role="row" aria-rowindex={1}>
            {COLUMNS.map((name) => (
              <span role="columnheader" key={name} class={classOf(name)}>
                {name}
              </span>
            ))}
          </div>
        </div>
        <div class="rows" role="rowgroup" style={{ height: `${shown.value.length * rowHeight}px` }}>
          {rows.map((row, index) => (
            <Row
              key={row.n}
              row={row}
              index={first + index}
              top={(first + index) * rowHeight}
              isChosen={row.n === chosen}
              choose={choose}
            />
          ))}
          {shown.value.length === 0 && (
            <div role="row">
              <div role="cell" class="empty">
                {reasonForNothing()}
              </div>
            </div>
          )}
        </div>
      </div>
    </div>
  );
}

function reasonForNothing(): string {
  if (locks.value.size > 0) return 'No lock matches.';
  return connection.value === 'live' ? 'Nobody holds a lock at present.' : 'The locks are not known yet.';
}

function classOf(column: (typeof COLUMNS)[number]): string {
  return column.toLowerCase().replace(' ', '-');
}

interface RowProps {
  readonly row: LockRow;
  readonly index: number;
  readonly top: number;
  readonly isChosen: boolean;
  readonly choose: (n: number) => void;
}

function Row({ row, index, top, isChosen, choose }: RowProps) {
  const { n, key, length, holders } = row;
  const [holder] = holders;
  return (
    <div
      class={`row${isChosen ? ' chosen' : ''}`}
      role="row"
      aria-rowindex={index + 2}
      data-index={index}
      style={{ transform: `translateY(${top}px)` }}
    >
      <span role="cell" class="key">
        <button
          type="button"
          aria-expanded={isChosen}
          title={`${printable(key)}${length === undefined ? '' : '…'}`}
          onClick={() => choose(n)}
        >
          <Text of={key} cut={length !== undefined} />
        </button>
      </span>
      <span role="cell" class="kind">
        <Kind row={row} />
      </span>
      <Owners row={row} />
      <span role="cell" class="held-for" data-label="Held for">
        {holder && <Since at={Math.min(...holders.map(({ since }) => since))} />}
      </span>
      <span role="cell" class="left" data-label="Left">
        {holder && <Left holder={holder} />}
      </span>
      <span role="cell" class="waiting" data-label="Waiting">
        <Waiting row={row} />
      </span>
      <span role="cell" class="token" data-label="Token">
        {holder?.token}
      </span>
    </div>
  );
}

/** Shows the first holder and the number of the others. The tooltip names more of them. */
function Owners({ row: { holders, more = 0 } }: { row: LockRow }) {
  const [holder] = holders;
  const others = holders.length + more - 1;
  const names = holders.map(({ owner }) => printable(owner)).join(', ');
  return (
    <span
      role="cell"
      class={holder && holdIn(holder.owner) ? 'owner kept' : 'owner'}
      data-label="Owner"
      title={more > 0 ? `${names} and ${more} more` : names}
    >
      {holder ? <Owner name={holder.owner} /> : 'no quorum'}
      {others > 0 && (
        <span class="others">
          +{others} <span>more</span>
        </span>
      )}
      {holder?.own && <span class="badge">here</span>}
    </span>
  );
}
