import type { ComponentChildren } from 'preact';

export interface Column<Row> {
  readonly name: string;
  readonly cell: (row: Row) => ComponentChildren;
  readonly isNumber?: true;
}

interface TableProps<Row> {
  /** The first column names the row. */
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string | number;
}

/**
 * A table. If it is narrow, each row becomes a block of lines with the names of the columns (style.css). The roles
 * are written out, because an element with another `display` than a table's loses its role in some browsers.
 */
export function Table<Row>({ columns, rows, keyOf }: TableProps<Row>) {
  const [naming, ...others] = columns;
  return (
    <div class="table-frame">
      <table role="table">
        <thead role="rowgroup">
          <tr role="row">
            {columns.map(({ name }) => (
              <th key={name} scope="col" role="columnheader">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr key={keyOf(row)} role="row">
              <th scope="row" role="rowheader">
                {naming?.cell(row)}
              </th>
              {others.map(({ name, cell, isNumber }) => (
                <td key={name} role="cell" data-label={name} class={isNumber ? 'number' : ''}>
                  <div>{cell(row)}</div>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
