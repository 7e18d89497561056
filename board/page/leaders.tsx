import type { CampaignRow, LockRow } from '../../lib/board/live/messages.js';
import { locks, status } from './connection.js';
import { Left, Since } from './lock-cells.js';
import { type Column, Table } from './table.js';
import { Text } from './text.js';

const LEADER_PREFIX = 'leader:';

interface LeaderRow {
  readonly name: string;
  readonly holder: LockRow['holders'][number] | undefined;
  readonly campaign: CampaignRow | undefined;
}

const COLUMNS: readonly Column<LeaderRow>[] = [
  { name: 'Name', cell: ({ name }) => <Text of={name} /> },
  { name: 'Leader', cell: ({ holder }) => (holder ? <Text of={holder.owner} /> : 'nobody') },
  { name: 'Leads for', cell: ({ holder }) => holder && <Since at={holder.since} /> },
  { name: 'Ends in', cell: ({ holder }) => holder && <Left holder={holder} /> },
  { name: 'Term', cell: ({ holder }) => holder?.token, isNumber: true },
  {
    name: 'This process',
    cell: ({ campaign }) => campaign && (campaign.isLeader ? 'leads' : 'campaigns'),
  },
];

/** Shows who leads, and for which names this process campaigns. */
export function Leaders() {
  const { campaigns } = status.value;
  const led = new Map<string, LockRow>();
  for (const row of locks.value.values())
    if (row.key.startsWith(LEADER_PREFIX) && row.mode !== null)
      led.set(row.key.slice(LEADER_PREFIX.length), row);
  const names = [...new Set([...led.keys(), ...campaigns.map(({ name }) => name)])].toSorted();
  if (names.length === 0) return <p>There is no leader, and this process campaigns for no name.</p>;
  const rows = names.map((name) => ({
    name,
    holder: led.get(name)?.holders[0],
    campaign: campaigns.find((each) => each.name === name),
  }));
  return <Table columns={COLUMNS} rows={rows} keyOf={({ name }) => name} />;
}
