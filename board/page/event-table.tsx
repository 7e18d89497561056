import { useSignal } from '@preact/signals';
import type { HistoryEntry } from '../../lib/board/live/messages.js';
import { endOf, eventText, startOf } from './event-text.js';
import { clock } from './format.js';
import { type Column, Table } from './table.js';
import { Text } from './text.js';

const MOST = 100;

interface EventTableProps {
  readonly history: readonly HistoryEntry[];
  readonly isOneLock: boolean;
  readonly at: number;
}

/** The events of a timeline in words, the latest first: for screen readers, for a phone, and to copy. */
export function EventTable({ history, isOneLock, at }: EventTableProps) {
  const isOpen = useSignal(false);
  return (
    <details class="events" onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
      <summary>Events in words</summary>
      {isOpen.value && <Events history={history} isOneLock={isOneLock} at={at} />}
    </details>
  );
}

function Events({ history, isOneLock, at }: EventTableProps) {
  if (history.length === 0) return <p>There were no events in this time.</p>;
  const key: Column<HistoryEntry> = { name: 'Key', cell: (entry) => <Text of={entry.key} /> };
  const columns: readonly Column<HistoryEntry>[] = [
    { name: 'From', cell: (entry) => <span class="time">{clock(startOf(entry), 'millisecond')}</span> },
    ...(isOneLock ? [] : [key]),
    { name: 'Process', cell: ({ who }) => <Text of={who} /> },
    { name: 'What happened', cell: (entry) => eventText(entry, at) },
    { name: 'Token', cell: (entry) => entry.kind === 'held' && entry.token, isNumber: true },
  ];
  const latest = history.toSorted((a, b) => endOf(b, at) - endOf(a, at) || startOf(b) - startOf(a));
  return (
    <>
      {latest.length > MOST && (
        <p>
          The latest {MOST} of {latest.length} events.
        </p>
      )}
      <Table columns={columns} rows={latest.slice(0, MOST)} keyOf={nameOf} />
    </>
  );
}

function nameOf(entry: HistoryEntry): string {
  const slot = 'slot' in entry ? entry.slot : '';
  return `${entry.kind} ${startOf(entry)} ${slot} ${entry.who} ${entry.key}`;
}
