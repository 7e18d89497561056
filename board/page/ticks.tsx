import type { TickRow } from '../../lib/board/live/messages.js';
import { now, status } from './connection.js';
import { clock, duration } from './format.js';
import { type Column, Table } from './table.js';
import { Text } from './text.js';

const COLUMNS: readonly Column<TickRow>[] = [
  { name: 'Method', cell: ({ method }) => <Text of={method} /> },
  { name: 'Key', cell: ({ key }) => <Text of={key} /> },
  { name: 'Ran here', cell: ({ ran }) => ran, isNumber: true },
  { name: 'Last run', cell: ({ lastRun }) => lastRun && tickText(lastRun) },
  { name: 'Skipped here', cell: ({ skipped }) => skipped, isNumber: true },
  {
    name: 'Last skip, and who ran the tick',
    cell: ({ lastSkip }) =>
      lastSkip && (
        <>
          {tickText(lastSkip)}
          {lastSkip.by !== undefined && (
            <>
              , <Text of={lastSkip.by} />
            </>
          )}
        </>
      ),
  },
];

/** Shows how often this process ran or skipped each method with `oncePerTick`. */
export function Ticks() {
  const { ticks } = status.value;
  if (ticks.length === 0)
    return (
      <p>
        This process has not yet run or skipped a tick of a method or job with <code>oncePerTick</code>.
      </p>
    );
  return (
    <>
      <p>
        These are the ticks that this process has run or skipped. A tick that ran in another process is known
        only if it was skipped here.
      </p>
      <Table columns={COLUMNS} rows={ticks} keyOf={({ method }) => method} />
    </>
  );
}

/**
 * Shows when a tick ran or was skipped. A tick of an `@Interval` has no planned time, so the clock time of the event is
 * shown.
 */
function tickText({ tick, at }: { tick: number; at: number }): string {
  return `${clock(tick === 0 ? at : tick)} (${duration(Math.max(0, now.value - at))} ago)`;
}
