import type { DeclaredRow, LockRow } from '../../lib/board/live/messages.js';
import { about, locks } from './connection.js';
import { Kind, Owner, Since } from './lock-cells.js';
import { type Column, Table } from './table.js';
import { Text } from './text.js';

/** Shows the declared locks, also while they are free. */
export function Declared() {
  const { declared, owner: processName } = about.value;
  // Without the name of a process, this page comes from the command `npx nestjs-redlock board`.
  if (processName === undefined)
    return (
      <p>
        This command does not know the declared locks.{' '}
        <code>npx nestjs-redlock list --declared --locks FILE</code> lists them.
      </p>
    );
  if (declared.length === 0)
    return (
      <p>
        No locks are declared here. <code>defineLocks</code> declares them, and a module takes them as{' '}
        <code>locks</code>.
      </p>
    );
  const byKey = new Map([...locks.value.values()].map((row) => [row.key, row]));
  const columns: readonly Column<DeclaredRow>[] = [
    { name: 'Name', cell: ({ name }) => <Text of={name} /> },
    { name: 'Key', cell: ({ keys }) => (keys ? <Text of={keys.join(', ')} /> : 'from a function') },
    {
      name: 'State',
      cell: ({ keys }) => keys && <DeclaredState rows={keys.flatMap((key) => byKey.get(key) ?? [])} />,
    },
    {
      name: 'Kind and policy, in milliseconds',
      cell: ({ mode, permits, policy, overridden }) => (
        <>
          {permits === undefined ? mode : `${permits} permits`}, {policy}
          {overridden.length > 0 && <span class="badge">overridden: {overridden.join(', ')}</span>}
        </>
      ),
    },
    { name: 'Team', cell: ({ team }) => team !== undefined && <Text of={team} /> },
    { name: 'What it is for', cell: ({ about: purpose }) => purpose !== undefined && <Text of={purpose} /> },
  ];
  return <Table columns={columns} rows={declared} keyOf={({ name }) => name} />;
}

function DeclaredState({ rows }: { rows: readonly LockRow[] }) {
  const [row] = rows;
  const [holder] = row?.holders ?? [];
  if (!row || !holder) return <span class="badge">free</span>;
  return (
    <>
      <Kind row={row} /> <Owner name={holder.owner} />, for <Since at={holder.since} />
    </>
  );
}
