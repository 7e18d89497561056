import type { NodeRow } from '../../lib/board/live/messages.js';
import { status } from './connection.js';
import { duration } from './format.js';
import { type Column, Table } from './table.js';
import { Text } from './text.js';

const COLUMNS: readonly Column<NodeRow>[] = [
  { name: 'Node', cell: ({ node }) => <Text of={node} /> },
  {
    name: 'State',
    cell: ({ state, votesIn }) => (
      <>
        <span class={`badge${state === 'voting' ? '' : ' bad'}`}>{state}</span>
        {votesIn !== undefined && ` votes in ${duration(votesIn)}`}
      </>
    ),
  },
  {
    name: 'Why, and what to change',
    cell: ({ reason, warnings }) =>
      [reason ?? [], warnings].flat().map((text) => (
        <p key={text}>
          <Text of={text} />
        </p>
      )),
  },
];

/** Shows which nodes vote, and why the others do not. */
export function Nodes() {
  const { nodes } = status.value;
  if (!nodes) return <p>The nodes have not been checked yet.</p>;
  return (
    <>
      <p>
        {nodes.quorum} of {nodes.nodes.length} must agree.
      </p>
      <Table columns={COLUMNS} rows={nodes.nodes} keyOf={({ node }) => node} />
    </>
  );
}
