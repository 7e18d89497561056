import { useEffect, useRef } from 'preact/hooks';
import type { HistoryEntry } from '../../lib/board/live/messages.js';
import { drawLegend, type Lane, MARKS, Timeline } from '../timeline/timeline.js';
import { now } from './connection.js';
import { printable } from '../../lib/core/printable.js';
import { clock } from './format.js';

const LANE = 52;
const MIDDLE = 28;
const MOST_LANES = 30;

/** The lengths of time that the timeline can show. */
const WINDOWS: readonly (readonly [milliseconds: number, name: string])[] = [
  [30_000, '30 s'],
  [120_000, '2 min'],
  [600_000, '10 min'],
];

/** Longest time in milliseconds from one holder to the next holder, for which a line connects the two. */
const HAND_OVER_MS = 1_000;

/** The name of an entry's lane. Each process has a lane, or several lanes, one for each of its slots. */
function laneOf(entry: HistoryEntry): string {
  const slot = entry.kind === 'held' && entry.slot !== undefined ? `, slot ${entry.slot}` : '';
  return `${printable(entry.who)}${slot}`;
}

interface TimelineProps {
  readonly title: string;
  readonly history: readonly HistoryEntry[];
  readonly back: number;
  readonly setBack: (milliseconds: number) => void;
}

/** Shows the events of one lock, or of all locks with a prefix, in the last minutes. */
export function TimelineView({ title, history, back, setBack }: TimelineProps) {
  const target = useRef<HTMLDivElement>(null);
  const legend = useRef<HTMLUListElement>(null);
  const at = now.value;
  useEffect(() => {
    if (legend.current) drawLegend(legend.current, LEGEND);
  }, []);
  useEffect(() => {
    if (target.current) draw(target.current, title, history, at, back);
  }, [history, at, title, back]);
  return (
    <section class="timeline-view" aria-label="Timeline">
      <div class="choices" role="group" aria-label="How far back">
        {WINDOWS.map(([milliseconds, name]) => (
          <button type="button" aria-pressed={milliseconds === back} onClick={() => setBack(milliseconds)}>
            {name}
          </button>
        ))}
      </div>
      <div class="scroll" tabIndex={0} role="group" aria-label="Drawing" ref={target} />
      <ul class="legend" ref={legend} />
    </section>
  );
}

function draw(
  target: HTMLElement,
  title: string,
  history: readonly HistoryEntry[],
  at: number,
  back: number,
): void {
  const from = at - back;
  const recent = history.filter((entry) => ('at' in entry ? entry.at : (entry.to ?? at)) >= from);
  // Lanes of this process come first; otherwise the lanes are in the order of the events.
  const mine = recent.filter((entry) => entry.kind !== 'held' || entry.own);
  const names = [...new Set([...mine, ...recent].map(laneOf))].slice(0, MOST_LANES);
  const timeline = new Timeline({
    title: `${title}: ${summaryOf(recent)}`,
    from,
    to: at,
    width: Math.max(target.clientWidth, 300),
    height: Math.max(1, names.length) * LANE,
  });
  const lanes = new Map(names.map((name, index) => [name, timeline.lane(index * LANE, MIDDLE)]));
  for (const [name, lane] of lanes) {
    lane.life(from, at);
    for (const entry of recent) if (laneOf(entry) === name) drawEntry(lane, timeline, entry, at);
    lane.name(name);
  }
  drawHandOvers(recent, lanes, names);
  timeline.axis([from, at], (value) => clock(value));
  timeline.showIn(target);
}

function drawEntry(lane: Lane, timeline: Timeline, entry: HistoryEntry, at: number): void {
  switch (entry.kind) {
    case 'held': {
      const { asked, from, to = at, end, token } = entry;
      if (asked !== undefined) lane.waits(asked, from);
      lane.bar('work', from, Math.max(to, from + 1));
      if (end === 'lost') lane.lost(to, 'lost');
      if (token !== undefined && timeline.x(to) - timeline.x(from) > 90)
        lane.text('small halo', timeline.x(from), MIDDLE + 22, `#${String(token).slice(-6)}`);
      break;
    }
    case 'waited':
      lane.waits(entry.from, entry.to);
      if (entry.outcome === 'unavailable') lane.unavailable(entry.to);
      break;
    case 'skipped':
      lane.skipped(entry.at);
      break;
    case 'unconfirmed':
      lane.unavailable(entry.at);
      break;
    case 'forced':
      lane.cross(entry.at, 7);
      break;
  }
}

/** Draws a line from one holder of a key to the next holder of the key, if the next holder had waited. */
function drawHandOvers(
  history: readonly HistoryEntry[],
  lanes: ReadonlyMap<string, Lane>,
  names: readonly string[],
): void {
  const holds = history.filter((entry) => entry.kind === 'held').toSorted((a, b) => a.from - b.from);
  for (const next of holds) {
    if (next.asked === undefined) continue;
    const before = holds.find(
      ({ key, to }) =>
        key === next.key &&
        to !== undefined &&
        Math.abs(next.from - to) < HAND_OVER_MS &&
        to <= next.from + 5,
    );
    if (!before || laneOf(before) === laneOf(next)) continue;
    const [start, end] = [names.indexOf(laneOf(before)), names.indexOf(laneOf(next))];
    if (start >= 0 && end >= 0) lanes.get(laneOf(before))?.handedOver(next.from, (end - start) * LANE);
  }
}

/** Describes the drawing in words, for screen readers. */
function summaryOf(history: readonly HistoryEntry[]): string {
  const count = (fits: (entry: HistoryEntry) => boolean): number => history.filter(fits).length;
  const parts = [
    `${count(({ kind }) => kind === 'held')} times held`,
    `${count((entry) => entry.kind === 'waited' || (entry.kind === 'held' && entry.asked !== undefined))} times waited for`,
    `${count(({ kind }) => kind === 'skipped')} times skipped`,
    `${count((entry) => entry.kind === 'held' && entry.end === 'lost')} times lost`,
    `${count(({ kind }) => kind === 'forced')} times ended by force`,
  ];
  return parts.join(', ');
}

const LEGEND = [
  [MARKS.work, 'held'],
  [MARKS.waits, 'waited'],
  [MARKS.handedOver, 'handed over'],
  [MARKS.skipped, 'skipped'],
  [MARKS.unavailable, 'too few nodes voted'],
  [MARKS.lost, 'lost'],
  [MARKS.forced, 'ended by force'],
  [MARKS.token, 'the last digits of the fencing token'],
] as const;
