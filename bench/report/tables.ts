import Table from 'cli-table3';
import type { Figure, Figures } from '../measure/rounds.js';

/** A figure of a table. */
export interface Column {
  /** Name of the figure in the samples. */
  readonly figure: string;
  readonly title: string;
  readonly digits: number;
  /** True if the cell also shows the ratio to the first row. */
  readonly ratio?: boolean;
}

/** Results of a group: one row for each name, one column for each figure. */
export interface ResultTable {
  readonly title: string;
  readonly columns: readonly Column[];
  readonly rows: Figures;
  readonly notes?: readonly string[];
}

/** Formats a table for the terminal. */
export function inTerminal({ title, columns, rows, notes = [] }: ResultTable): string {
  const table = new Table({
    head: ['', ...columns.map((column) => column.title)],
    colAligns: ['left', ...columns.map(() => 'right' as const)],
    style: { head: [], border: [] },
  });
  for (const cells of cellsOf(columns, rows)) table.push([...cells]);
  return [`\n${title}`, table.toString(), ...notes.map((note) => `  ${note}`)].join('\n');
}

/** Formats a table for a page. */
export function inMarkdown({ title, columns, rows, notes = [] }: ResultTable): string {
  const lines = [
    `**${title}**`,
    '',
    `| | ${columns.map((column) => column.title).join(' | ')} |`,
    `| --- | ${columns.map(() => '---:').join(' | ')} |`,
    ...cellsOf(columns, rows).map((cells) => `| ${cells.join(' | ')} |`),
  ];
  if (notes.length > 0) lines.push('', ...notes.map((note) => `${note}  `));
  return lines.join('\n');
}

function cellsOf(columns: readonly Column[], rows: Figures): readonly (readonly string[])[] {
  return [...rows].map(([name, figures]) => [
    name,
    ...columns.map(({ figure, digits, ratio }) => cell(figures[figure], digits, ratio ?? false)),
  ]);
}

function cell(figure: Figure | undefined, digits: number, withRatio: boolean): string {
  if (!figure || Number.isNaN(figure.median)) return '-';
  const value = Number.isFinite(figure.median) ? figure.median.toFixed(digits) : 'never';
  if (!withRatio || !figure.ratio) return value;
  const { median, low, high } = figure.ratio;
  return `${value}  x${median.toFixed(2)} (${low.toFixed(2)}-${high.toFixed(2)})`;
}
