import { axisBottom } from 'd3-axis';
import { scaleLinear } from 'd3-scale';
import { create, select, type Selection } from 'd3-selection';
import type { LabEvent, RunRecord } from '../lab-event.js';
import type { Rule } from '../lab-event.js';
import { overlapsOf, type Span, spansOf } from '../spans.js';

type Group = Selection<SVGGElement, undefined, null, undefined>;
type X = (at: number) => number;

/** Several at once are no mistake where the database decides. */
const PARALLEL: ReadonlySet<RunRecord['strategy']> = new Set(['skip-locked', 'unique-constraint']);

const LANE = 74;
const NODE_LANE = 30;
const TOP = 22;
const AXIS = 26;
const BAR = 20;
/** On a narrow screen the picture scrolls, rather than becoming too dense to read. */
const LEAST_WIDTH_PER_SECOND = 46;
const LONGEST_LIVE_WINDOW_MS = 20_000;

/** Draws a run: what each instance believed and did, and what became of the nodes. */
export function drawRun(target: HTMLElement, record: RunRecord, now: number): void {
  const { from, to } = windowOf(record, now);
  const width = Math.max(target.clientWidth, ((to - from) / 1_000) * LEAST_WIDTH_PER_SECOND);
  const height = TOP + record.instances.length * LANE + record.nodes.length * NODE_LANE + AXIS;
  const scale = scaleLinear()
    .domain([from, to])
    .range([10, width - 18]);
  const x: X = (at) => scale(Math.min(Math.max(at, from), to));

  const svg = create('svg').attr('width', width).attr('height', height).attr('role', 'img');
  svg.append('title').text(`Timeline of: ${record.title}`);
  addPatterns(svg.append('defs'));

  const spans = spansOf(record.events);
  const wrong = PARALLEL.has(record.strategy) ? [] : spans;
  drawOverlaps(svg.append('g'), wrong, x, {
    from,
    to,
    height: TOP + record.instances.length * LANE,
    rule: record.rule ?? {},
  });
  const visible = record.events.filter(({ at }) => at >= from && at <= to);
  for (const [index, name] of record.instances.entries()) {
    const lane = svg.append('g').attr('transform', `translate(0,${TOP + index * LANE})`);
    const own = spans.filter((span) => span.who === name && (span.to ?? now) >= from);
    drawInstance(lane, name, own, visible, record, x, { from, to });
  }
  const nodesTop = TOP + record.instances.length * LANE;
  for (const [index, name] of record.nodes.entries()) {
    drawNode(
      svg.append('g').attr('transform', `translate(0,${nodesTop + index * NODE_LANE})`),
      name,
      record,
      x,
      {
        from,
        to,
      },
    );
  }
  const seconds = scaleLinear()
    .domain([(from - record.startedAt) / 1_000, (to - record.startedAt) / 1_000])
    .range(scale.range());
  svg
    .append('g')
    .attr('class', 'axis')
    .attr('transform', `translate(0,${height - AXIS + 4})`)
    .call(
      axisBottom(seconds)
        .ticks(Math.max(3, width / 90))
        .tickFormat((value) => `${value.valueOf()} s`),
    );
  const node = svg.node();
  if (node) target.replaceChildren(node);
}

/** From just before the first thing that matters to the end; while it runs, at most the last while. */
function windowOf(record: RunRecord, now: number): { from: number; to: number } {
  const to = (record.endedAt === undefined ? now : (record.events.at(-1)?.at ?? now)) + 300;
  const submitted = record.events.find(({ kind }) => kind === 'submitted')?.at ?? record.startedAt;
  const earliest = record.endedAt === undefined ? to - LONGEST_LIVE_WINDOW_MS : 0;
  return { from: Math.max(submitted - 200, earliest, record.startedAt), to: Math.max(to, submitted + 1_500) };
}

interface Window {
  readonly from: number;
  readonly to: number;
}

function drawOverlaps(
  group: Group,
  spans: readonly Span[],
  x: X,
  { from, to, height, rule }: Window & { height: number; rule: Rule },
): void {
  const tooMany = rule.atOnce === 2 ? 'three at once' : 'two at once';
  for (const overlap of overlapsOf(spans, to, rule)) {
    if (overlap.to < from || overlap.to - overlap.from < 5) continue;
    const [left, right] = [x(overlap.from), x(overlap.to)];
    group
      .append('rect')
      .attr('class', 'two')
      .attr('x', left)
      .attr('y', 0)
      .attr('width', right - left)
      .attr('height', height);
    line(group, 'two-edge', left, 0, left, height);
    line(group, 'two-edge', right, 0, right, height);
    if (right - left > 74) text(group, 'bad-text halo', left + 4, 13, tooMany);
  }
}

function drawInstance(
  lane: Group,
  name: string,
  spans: readonly Span[],
  events: readonly LabEvent[],
  record: RunRecord,
  x: X,
  { from, to }: Window,
): void {
  const middle = 36;
  let alive: number | undefined = from;
  for (const { who, kind, at } of record.events) {
    if (who !== name) continue;
    if (kind === 'killed' && alive !== undefined) {
      line(lane, 'lane', x(alive), middle, x(at), middle);
      alive = undefined;
    } else if (kind === 'started') {
      alive ??= at;
    }
  }
  if (alive !== undefined) line(lane, 'lane', x(alive), middle, x(to), middle);
  const writes = name === record.rule?.writer;
  text(lane, 'name halo', x(from), 12, writes ? `${name}, which has to be alone` : name);

  const own = events.filter(({ who }) => who === name);
  for (const { at } of own.filter(({ kind }) => kind === 'skipped'))
    line(lane, 'skip', x(at), middle + 12, x(at), middle + 20);
  for (const { at } of own.filter(({ kind }) => kind === 'unavailable')) {
    lane
      .append('circle')
      .attr('class', 'skip')
      .attr('fill', 'none')
      .attr('cx', x(at))
      .attr('cy', middle + 16)
      .attr('r', 2.5);
  }
  const parallel = PARALLEL.has(record.strategy);
  for (const span of spans) drawSpan(lane, parallel ? { ...span, locked: true } : span, x, middle, to);
  const all = record.events.filter(({ who }) => who === name);
  drawWait(lane, all, x, middle, to);
  drawPauses(lane, all, x, middle, to);
  const death = own.find(({ kind }) => kind === 'killed');
  if (death && record.outcome?.recovery === 'never') {
    line(lane, 'ttl', x(death.at), middle + 14, x(to), middle + 14);
    text(lane, 'bad-text halo', x(death.at) + 12, middle + 31, 'its key has no end');
  }
  let lastLabel = -Infinity;
  for (const event of own) {
    const at = x(event.at);
    switch (event.kind) {
      case 'renewed':
        lane
          .append('path')
          .attr('class', 'ttl')
          .attr('d', `M${at - 4},${middle + 16}l4,-5l4,5z`)
          .attr('fill', 'none')
          .attr('stroke-width', 1.5);
        break;
      case 'pushed': {
        const copies = event.duplicates?.length ?? 0;
        drawPush(lane, at, middle, event.jobs.length, copies, at - lastLabel > 40);
        lastLabel = at;
        break;
      }
      case 'killed':
        cross(lane, at, middle, 9);
        text(lane, 'bad-text halo', at + 12, middle - 14, 'killed');
        break;
      case 'refused':
        lane.append('circle').attr('class', 'push').attr('cx', at).attr('cy', middle).attr('r', 8);
        line(lane, 'ttl-end', at - 5, middle + 5, at + 5, middle - 5);
        text(
          lane,
          'good-text halo',
          at - 4,
          middle + 33,
          'late write refused',
          at > x(to) - 120 ? 'end' : 'start',
        );
        break;
      case 'lost':
        text(lane, 'name halo', at, middle - 14, '! lock lost', at > x(to) - 70 ? 'end' : 'start');
        break;
      default:
    }
  }
}

function drawSpan(lane: Group, span: Span, x: X, middle: number, to: number): void {
  const end = span.to ?? to;
  const lockEnds =
    span.ttl === undefined ? (span.locked ? end : span.from) : Math.min(span.lockEnds ?? end, end);
  const bar = (className: string, left: number, right: number): void => {
    if (right <= left) return;
    lane
      .append('rect')
      .attr('class', className)
      .attr('x', x(left))
      .attr('y', middle - BAR / 2)
      .attr('width', Math.max(1, x(right) - x(left)))
      .attr('height', BAR);
  };
  bar('work', span.from, lockEnds);
  bar('without-lock', Math.max(lockEnds, span.from), end);
  if (span.ttl !== undefined && span.lockEnds !== undefined) {
    line(
      lane,
      'ttl',
      x(span.from),
      middle + 14,
      x(Math.min(span.lockEnds, span.end === 'released' ? end : Infinity)),
      middle + 14,
    );
    if (span.lockEnds < end || span.end === 'killed') {
      line(lane, 'ttl-end', x(span.lockEnds), middle - 14, x(span.lockEnds), middle + 18);
      text(lane, 'small halo', x(span.lockEnds) + 3, middle + 31, 'ttl ends');
    }
  }
  if (x(end) - x(span.from) <= 30) return;
  if (span.slot !== undefined) text(lane, 'small halo', x(span.from), middle + 31, `slot ${span.slot}`);
  else if (span.token !== undefined) {
    text(lane, 'small halo', x(span.from), middle + 31, `#${String(span.token).slice(-6)}`);
  }
}

function drawWait(lane: Group, own: readonly LabEvent[], x: X, middle: number, to: number): void {
  const asking = own.find(({ kind }) => kind === 'asking');
  if (!asking) return;
  const end = own.find(({ kind, at }) => kind === 'acquired' && at >= asking.at)?.at ?? to;
  lane
    .append('rect')
    .attr('class', 'waits')
    .attr('x', x(asking.at))
    .attr('y', middle - BAR / 2)
    .attr('width', Math.max(1, x(end) - x(asking.at)))
    .attr('height', BAR);
  const seconds = ((end - asking.at) / 1_000).toFixed(1);
  text(lane, 'name halo', x(asking.at) + 4, middle + 4, `waits ${seconds} s`);
}

function drawPauses(lane: Group, own: readonly LabEvent[], x: X, middle: number, to: number): void {
  for (const [index, { kind, at }] of own.entries()) {
    if (kind !== 'paused') continue;
    const end =
      own.slice(index).find((event) => event.kind === 'resumed' || event.kind === 'killed')?.at ?? to;
    lane
      .append('rect')
      .attr('class', 'asleep')
      .attr('x', x(at))
      .attr('y', middle - BAR / 2 - 3)
      .attr('width', x(end) - x(at))
      .attr('height', BAR + 6);
    text(lane, 'name halo', x(at) + 4, middle + 4, 'paused');
  }
}

/** A first push is a circle. A duplicate differs in form, filling, colour and word. */
function drawPush(
  lane: Group,
  at: number,
  middle: number,
  jobs: number,
  duplicates: number,
  label: boolean,
): void {
  if (duplicates === 0) {
    lane.append('circle').attr('class', 'push').attr('cx', at).attr('cy', middle).attr('r', 6);
    if (label) text(lane, 'good-text halo', at, middle - 14, `${jobs}`, 'middle');
    return;
  }
  lane
    .append('path')
    .attr('class', 'duplicate')
    .attr('d', `M${at},${middle - 11}l11,11l-11,11l-11,-11z`);
  lane
    .append('path')
    .attr('stroke', '#fff')
    .attr('stroke-width', 2)
    .attr('d', `M${at - 4},${middle - 4}l8,8m0,-8l-8,8`);
  if (label) text(lane, 'bad-text halo', at, middle - 15, `${duplicates} twice`, 'middle');
}

function drawNode(lane: Group, name: string, record: RunRecord, x: X, { from, to }: Window): void {
  const middle = 20;
  text(lane, 'small halo', x(from), 12, name);
  let since: number | undefined = from;
  for (const { who, kind, at } of record.events) {
    if (who !== name) continue;
    if (kind === 'node-killed' && since !== undefined) {
      if (at > from) line(lane, 'lane', x(since), middle, x(at), middle);
      since = undefined;
      cross(lane, x(at), middle, 6);
      text(lane, 'small halo', x(at) + 9, middle - 3, 'killed');
    } else if (kind === 'node-started') {
      since = Math.max(at, from);
      line(lane, 'ttl-end', x(at), middle - 7, x(at), middle + 7);
      text(lane, 'small halo', x(at) + 4, middle + 9, 'back, empty');
    }
  }
  if (since !== undefined) line(lane, 'lane', x(since), middle, x(to), middle);
}

function line(group: Group, className: string, x1: number, y1: number, x2: number, y2: number): void {
  group.append('line').attr('class', className).attr('x1', x1).attr('y1', y1).attr('x2', x2).attr('y2', y2);
}

function text(
  group: Group,
  className: string,
  x: number,
  y: number,
  content: string,
  anchor = 'start',
): void {
  group
    .append('text')
    .attr('class', className)
    .attr('x', x)
    .attr('y', y)
    .attr('text-anchor', anchor)
    .text(content);
}

function cross(group: Group, x: number, y: number, size: number): void {
  group
    .append('path')
    .attr('stroke', '#1b1f24')
    .attr('stroke-width', 3)
    .attr('d', `M${x - size},${y - size}l${2 * size},${2 * size}m0,${-2 * size}l${-2 * size},${2 * size}`);
}

function addPatterns(defs: Selection<SVGDefsElement, undefined, null, undefined>): void {
  const hatched = defs
    .append('pattern')
    .attr('id', 'hatched')
    .attr('patternUnits', 'userSpaceOnUse')
    .attr('width', 7)
    .attr('height', 7)
    .attr('patternTransform', 'rotate(45)');
  hatched.append('rect').attr('width', 7).attr('height', 7).attr('fill', '#fff');
  hatched.append('rect').attr('width', 3).attr('height', 7).attr('fill', '#e08a95');
  const dots = defs
    .append('pattern')
    .attr('id', 'dots')
    .attr('patternUnits', 'userSpaceOnUse')
    .attr('width', 6)
    .attr('height', 6);
  dots.append('rect').attr('width', 6).attr('height', 6).attr('fill', '#e7e9ec');
  dots.append('circle').attr('cx', 3).attr('cy', 3).attr('r', 1).attr('fill', '#59636e');
}

const LEGEND: readonly [string, string][] = [
  ['<rect class="work" x="1" y="4" width="24" height="10"/>', 'works, its lock is there'],
  ['<rect class="without-lock" x="1" y="4" width="24" height="10"/>', 'works, and has no lock (any more)'],
  ['<line class="ttl" x1="1" y1="9" x2="25" y2="9"/>', 'how long Redis keeps its lock'],
  ['<path class="ttl" d="M9,13l4,-5l4,5z" fill="none" stroke-width="1.5"/>', 'renewed'],
  ['<line class="skip" x1="13" y1="4" x2="13" y2="14"/>', 'tried and skipped'],
  ['<circle class="skip" fill="none" cx="13" cy="9" r="3"/>', 'too few nodes voted'],
  ['<circle class="push" cx="13" cy="9" r="6"/>', 'pushed to the queue'],
  [
    '<path class="duplicate" d="M13,0l9,9l-9,9l-9,-9z"/><path stroke="#fff" stroke-width="2" d="M9,5l8,8m0,-8l-8,8"/>',
    'pushed what had been pushed: duplicates',
  ],
  ['<text class="small" x="0" y="13">#12</text>', 'the end of its fencing token'],
  ['<rect class="waits" x="1" y="4" width="24" height="10"/>', 'waits for its turn'],
  ['<rect class="asleep" x="1" y="3" width="24" height="12"/>', 'paused'],
  [
    '<rect class="two" x="1" y="0" width="24" height="18"/><line class="two-edge" x1="1" y1="0" x2="1" y2="18"/>',
    'more at once than may',
  ],
];

/** What the marks mean. The patterns are those of the chart beside it. */
export function drawLegend(target: HTMLElement): void {
  for (const [mark, meaning] of LEGEND) {
    const item = select(target).append('li');
    item.append('svg').attr('width', 26).attr('height', 18).attr('aria-hidden', 'true').html(mark);
    item.append('span').text(meaning);
  }
}
