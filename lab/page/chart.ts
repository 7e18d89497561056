import { drawLegend as drawMarks, Lane, MARKS, Timeline } from '../../board/timeline/timeline.js';
import type { LabEvent, RunRecord } from '../lab-event.js';
import type { Rule } from '../lab-event.js';
import { overlapsOf, type Span, spansOf } from '../spans.js';

/**
 * Strategies that let several instances dispatch at the same time without duplicates: the database lets only one
 * instance dispatch each task.
 */
const PARALLEL: ReadonlySet<RunRecord['strategy']> = new Set(['skip-locked', 'unique-constraint']);

const AFTER_A_PAUSE: ReadonlySet<LabEvent['kind']> = new Set(['resumed', 'killed', 'node-killed']);

const LANE = 74;
const NODE_LANE = 30;
const TOP = 22;
/** Least width of a second in pixels. On a narrow screen the picture scrolls. */
const LEAST_WIDTH_PER_SECOND = 46;
const LONGEST_LIVE_WINDOW_MS = 20_000;

/** Draws a run: the beliefs and actions of each instance, and the states of the nodes. */
export function drawRun(target: HTMLElement, record: RunRecord, now: number): void {
  const { from, to } = windowOf(record, now);
  const timeline = new Timeline({
    title: `Timeline of: ${record.title}`,
    from,
    to,
    width: Math.max(target.clientWidth, ((to - from) / 1_000) * LEAST_WIDTH_PER_SECOND),
    height: TOP + record.instances.length * LANE + record.nodes.length * NODE_LANE,
  });
  const spans = spansOf(record.events);
  const wrong = PARALLEL.has(record.strategy) ? [] : spans;
  const height = TOP + record.instances.length * LANE;
  drawOverlaps(timeline.lane(0, 0), timeline, wrong, height, record.rule ?? {});
  const visible = record.events.filter(({ at }) => at >= from && at <= to);
  for (const [index, name] of record.instances.entries()) {
    const own = spans.filter((span) => span.who === name && (span.to ?? now) >= from);
    drawInstance(timeline.lane(TOP + index * LANE, 36), timeline, name, own, visible, record);
  }
  for (const [index, name] of record.nodes.entries())
    drawNode(timeline.lane(height + index * NODE_LANE, 20), timeline, name, record);
  const seconds = [from, to].map((at) => (at - record.startedAt) / 1_000) as [number, number];
  timeline.axis(seconds, (value) => `${value} s`);
  timeline.showIn(target);
}

/**
 * Returns the time window of the picture: from just before the first relevant event to the end of the run. During a run
 * the window is at most LONGEST_LIVE_WINDOW_MS long.
 */
function windowOf(record: RunRecord, now: number): { from: number; to: number } {
  const to = (record.endedAt === undefined ? now : (record.events.at(-1)?.at ?? now)) + 300;
  const submitted = record.events.find(({ kind }) => kind === 'submitted')?.at ?? record.startedAt;
  const earliest = record.endedAt === undefined ? to - LONGEST_LIVE_WINDOW_MS : 0;
  return { from: Math.max(submitted - 200, earliest, record.startedAt), to: Math.max(to, submitted + 1_500) };
}

function drawOverlaps(
  lane: Lane,
  timeline: Timeline,
  spans: readonly Span[],
  height: number,
  rule: Rule,
): void {
  const tooMany = rule.atOnce === 2 ? 'three at once' : 'two at once';
  for (const overlap of overlapsOf(spans, timeline.to, rule)) {
    if (overlap.to < timeline.from || overlap.to - overlap.from < 5) continue;
    const [left, right] = [timeline.x(overlap.from), timeline.x(overlap.to)];
    lane.band('two', overlap.from, overlap.to, height);
    lane.line('two-edge', left, 0, left, height);
    lane.line('two-edge', right, 0, right, height);
    if (right - left > 74) lane.text('bad-text halo', left + 4, 13, tooMany);
  }
}

function drawInstance(
  lane: Lane,
  timeline: Timeline,
  name: string,
  spans: readonly Span[],
  events: readonly LabEvent[],
  record: RunRecord,
): void {
  const { middle } = lane;
  const { from, to } = timeline;
  const x = (at: number): number => timeline.x(at);
  let alive: number | undefined = from;
  for (const { who, kind, at } of record.events) {
    if (who !== name) continue;
    if (kind === 'killed' && alive !== undefined) {
      lane.life(alive, at);
      alive = undefined;
    } else if (kind === 'started') {
      alive ??= at;
    }
  }
  if (alive !== undefined) lane.life(alive, to);
  const writes = name === record.rule?.writer;
  lane.name(writes ? `${name}, the writer` : name);

  const own = events.filter(({ who }) => who === name);
  for (const { at, kind } of own) {
    if (kind === 'skipped') lane.skipped(at);
    if (kind === 'unavailable') lane.unavailable(at);
  }
  const parallel = PARALLEL.has(record.strategy);
  for (const span of spans) drawSpan(lane, timeline, parallel ? { ...span, locked: true } : span);
  const all = record.events.filter(({ who }) => who === name);
  drawWait(lane, timeline, all);
  drawPauses(lane, timeline, all);
  const death = own.find(({ kind }) => kind === 'killed');
  if (death && record.outcome?.recovery === 'never') {
    lane.kept(death.at, to);
    lane.text('bad-text halo', x(death.at) + 12, middle + 31, 'its key has no ttl');
  }
  let lastLabel = -Infinity;
  for (const event of own) {
    const at = x(event.at);
    switch (event.kind) {
      case 'renewed':
        lane.renewed(event.at);
        break;
      case 'pushed': {
        const copies = event.duplicates?.length ?? 0;
        drawPush(lane, event.at, at, event.jobs.length, copies, at - lastLabel > 40);
        lastLabel = at;
        break;
      }
      case 'killed':
        lane.cross(event.at, 9);
        lane.text('bad-text halo', at + 12, middle - 14, 'killed');
        break;
      case 'refused':
        lane.circle('push', event.at, middle, 8);
        lane.line('ttl-end', at - 5, middle + 5, at + 5, middle - 5);
        lane.text(
          'good-text halo',
          at - 4,
          middle + 33,
          'late write refused',
          at > x(to) - 120 ? 'end' : 'start',
        );
        break;
      case 'lost':
        lane.lost(event.at, 'lock lost');
        break;
      default:
    }
  }
}

function drawSpan(lane: Lane, timeline: Timeline, span: Span): void {
  const { to } = timeline;
  const end = span.to ?? to;
  const lockEnds =
    span.ttl === undefined ? (span.locked ? end : span.from) : Math.min(span.lockEnds ?? end, end);
  lane.bar('work', span.from, lockEnds);
  lane.bar('without-lock', Math.max(lockEnds, span.from), end);
  const below = lane.middle + 31;
  if (span.ttl !== undefined && span.lockEnds !== undefined) {
    lane.kept(span.from, Math.min(span.lockEnds, span.end === 'released' ? end : Infinity));
    if (span.lockEnds < end || span.end === 'killed') {
      lane.end(span.lockEnds);
      lane.text('small halo', timeline.x(span.lockEnds) + 3, below, 'ttl ends');
    }
  }
  const left = timeline.x(span.from);
  if (timeline.x(end) - left <= 30) return;
  if (span.slot !== undefined) lane.text('small halo', left, below, `slot ${span.slot}`);
  else if (span.token !== undefined) lane.text('small halo', left, below, `#${String(span.token).slice(-6)}`);
}

function drawWait(lane: Lane, timeline: Timeline, own: readonly LabEvent[]): void {
  const asking = own.find(({ kind }) => kind === 'asking');
  if (!asking) return;
  const end = own.find(({ kind, at }) => kind === 'acquired' && at >= asking.at)?.at ?? timeline.to;
  lane.waits(asking.at, end);
  const seconds = ((end - asking.at) / 1_000).toFixed(1);
  lane.text('name halo', timeline.x(asking.at) + 4, lane.middle + 4, `waits ${seconds} s`);
}

function drawPauses(lane: Lane, timeline: Timeline, own: readonly LabEvent[], height?: number): void {
  for (const [index, { kind, at }] of own.entries()) {
    if (kind !== 'paused') continue;
    const end = own.slice(index).find((event) => AFTER_A_PAUSE.has(event.kind))?.at ?? timeline.to;
    lane.asleep(at, end, height);
    lane.text('name halo', timeline.x(at) + 4, lane.middle + 4, 'paused');
  }
}

/**
 * Draws a push. The mark of a first push is a circle. The mark of a duplicate differs in shape, filling, colour and
 * word.
 */
function drawPush(lane: Lane, at: number, x: number, jobs: number, duplicates: number, label: boolean): void {
  const { middle } = lane;
  if (duplicates === 0) {
    lane.circle('push', at, middle, 6);
    if (label) lane.text('good-text halo', x, middle - 14, `${jobs}`, 'middle');
    return;
  }
  lane.path('duplicate', `M${x},${middle - 11}l11,11l-11,11l-11,-11z`);
  lane.path('duplicate-cross', `M${x - 4},${middle - 4}l8,8m0,-8l-8,8`);
  if (label) lane.text('bad-text halo', x, middle - 15, `${duplicates} twice`, 'middle');
}

function drawNode(lane: Lane, timeline: Timeline, name: string, record: RunRecord): void {
  const { middle } = lane;
  const { from, to } = timeline;
  const x = (at: number): number => timeline.x(at);
  lane.text('small halo', x(from), 12, name);
  let since: number | undefined = from;
  const own = record.events.filter(({ who }) => who === name);
  for (const event of own) {
    const { kind, at } = event;
    if (kind === 'node-killed' && since !== undefined) {
      if (at > from) lane.life(since, at);
      since = undefined;
      lane.cross(at, 6);
      lane.text('small halo', x(at) + 9, middle - 3, 'killed');
    } else if (kind === 'node-started') {
      since = Math.max(at, from);
      lane.line('ttl-end', x(at), middle - 7, x(at), middle + 7);
      lane.text('small halo', x(at) + 4, middle + 9, event.empty ? 'back, empty' : 'back, with its locks');
    }
  }
  if (since !== undefined) lane.life(since, to);
  drawPauses(lane, timeline, own, 10);
}

const LEGEND: readonly (readonly [mark: string, meaning: string])[] = [
  [MARKS.work, 'works under its lock'],
  [MARKS.withoutLock, 'works without a lock'],
  [MARKS.kept, 'how long the servers keep its lock'],
  [MARKS.renewed, 'renewed'],
  [MARKS.skipped, 'tried and skipped'],
  [MARKS.unavailable, 'too few nodes voted'],
  ['<circle class="push" cx="13" cy="9" r="6"/>', 'pushed to the queue'],
  [
    '<path class="duplicate" d="M13,0l9,9l-9,9l-9,-9z"/><path class="duplicate-cross" d="M9,5l8,8m0,-8l-8,8"/>',
    'pushed jobs a second time: duplicates',
  ],
  [MARKS.token, 'the last digits of the fencing token'],
  [MARKS.waits, 'waits for its turn'],
  [MARKS.asleep, 'paused'],
  [
    '<rect class="two" x="1" y="0" width="24" height="18"/><line class="two-edge" x1="1" y1="0" x2="1" y2="18"/>',
    'more instances at once than allowed',
  ],
];

export function drawLegend(target: HTMLElement): void {
  drawMarks(target, LEGEND);
}
