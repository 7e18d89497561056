import { scaleLinear, scaleLog } from 'd3-scale';

/** A line through points. */
export interface Line {
  readonly name: string;
  readonly points: readonly (readonly [x: number, y: number])[];
}

/** A plot for a page. Its horizontal axis is logarithmic. */
export interface Plot {
  /** Name of the file without its extension. */
  readonly file: string;
  readonly title: string;
  readonly xTitle: string;
  readonly yTitle: string;
  readonly logY?: boolean;
  readonly lines: readonly Line[];
}

const WIDTH = 640;
const HEIGHT = 360;
const LEFT = 64;
const RIGHT = 180;
const TOP = 40;
const BOTTOM = 48;
const COLOURS = ['#4e79a7', '#e15759', '#59a14f', '#f28e2b', '#b07aa1', '#76b7b2', '#9c755f', '#555555'];

/** Makes an SVG image that is readable on light and on dark pages. */
export function inSvg({ title, xTitle, yTitle, logY = false, lines }: Plot): string {
  const xs = lines.flatMap(({ points }) => points.map(([x]) => x));
  const ys = lines.flatMap(({ points }) => points.map(([, y]) => y));
  const horizontal = scale(xs, true, LEFT, WIDTH - RIGHT);
  const vertical = scale(logY ? ys : [0, ...ys], logY, HEIGHT - BOTTOM, TOP);
  const parts = [
    `<text x="${LEFT}" y="20" font-size="14" font-weight="bold">${escaped(title)}</text>`,
    `<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 10}" text-anchor="middle">${escaped(xTitle)}</text>`,
    `<text transform="translate(14 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">${escaped(yTitle)}</text>`,
  ];
  for (const [value, y] of vertical.ticks) {
    parts.push(`<path d="M${LEFT} ${y}H${WIDTH - RIGHT}" stroke="#ddd"/>`);
    parts.push(`<text x="${LEFT - 6}" y="${y + 4}" text-anchor="end">${value}</text>`);
  }
  for (const [value, x] of horizontal.ticks) {
    parts.push(`<path d="M${x} ${TOP}V${HEIGHT - BOTTOM}" stroke="#eee"/>`);
    parts.push(`<text x="${x}" y="${HEIGHT - BOTTOM + 16}" text-anchor="middle">${value}</text>`);
  }
  for (const [index, { name, points }] of lines.entries()) {
    const colour = COLOURS[index % COLOURS.length];
    const path = points.map(([x, y]) => `${horizontal.at(x)},${vertical.at(y)}`).join(' ');
    parts.push(`<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="2"/>`);
    for (const [x, y] of points) {
      parts.push(`<circle cx="${horizontal.at(x)}" cy="${vertical.at(y)}" r="3" fill="${colour}"/>`);
    }
    const y = TOP + 16 * index;
    parts.push(`<rect x="${WIDTH - RIGHT + 12}" y="${y}" width="10" height="10" fill="${colour}"/>`);
    parts.push(`<text x="${WIDTH - RIGHT + 28}" y="${y + 9}">${escaped(name)}</text>`);
  }
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="11">` +
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="white"/>${parts.join('')}</svg>\n`
  );
}

interface Scale {
  readonly ticks: readonly (readonly [label: string, position: number])[];
  at(value: number): number;
}

/** Makes some ticks of an axis, and a function from values to positions. */
function scale(values: readonly number[], logarithmic: boolean, from: number, to: number): Scale {
  const range = [from, to];
  const domain = [Math.min(...values), Math.max(...values)];
  const axis = logarithmic ? scaleLog(domain, range) : scaleLinear(domain, range).nice(5);
  const at = (value: number): number => Math.round(10 * axis(value)) / 10;
  // A logarithmic axis has many ticks and space for few labels. `label` returns an empty text for the other ticks.
  const label = axis.tickFormat(4, '~s');
  const ticks = axis.ticks(5).filter((tick) => label(tick) !== '');
  return { at, ticks: ticks.map((tick) => [short(tick), at(tick)] as const) };
}

function short(value: number): string {
  if (value >= 1_000_000) return `${value / 1_000_000}M`;
  return value >= 1_000 ? `${value / 1_000}k` : String(Number(value.toPrecision(3)));
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
