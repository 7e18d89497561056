import type { HistoryEntry } from '../../lib/board/live/messages.js';
import { printable } from '../../lib/core/printable.js';
import { type Lane, Timeline } from '../timeline/timeline.js';
import { endOf, eventText, startOf } from './event-text.js';
import { clock, duration, shortened } from './format.js';

const LANE = 52;
const MIDDLE = 30;

/** Largest number of lanes that are drawn. */
export const MOST_LANES = 30;

/** The width in pixels of a character of a lane's name, and of a text on a bar. */
const [NAME_CHARACTER, TEXT_CHARACTER] = [7.4, 6.2];

/** Least number of pixels between two labels of the axis: of minutes, and of seconds. */
const [MINUTE_ROOM, SECOND_ROOM] = [56, 76];

/** Milliseconds between two labels of the axis. Each divides a minute or is a multiple of it. */
const STEPS = [1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000];

/** Longest time in milliseconds from one holder to the next holder, for which a line connects the two. */
const HAND_OVER_MS = 1_000;

export interface DrawingOptions {
  readonly title: string;
  readonly from: number;
  /** The end of the drawn time. */
  readonly at: number;
  readonly isOneLock: boolean;
  /** `at` is not the present time. */
  readonly isPast: boolean;
}

/** The events in one lane: of one process and one key, and with permits also of one slot. */
interface LaneEvents {
  readonly key: string;
  readonly who: string;
  readonly slot: number | undefined;
  readonly entries: HistoryEntry[];
  isOwn: boolean;
  latest: number;
}

/**
 * Draws the events in lanes, and the axis into an element of its own, which stays in view.
 *
 * @returns the number of lanes for which there is no room
 */
export function drawTimeline(
  lanesIn: HTMLElement,
  axisIn: HTMLElement,
  history: readonly HistoryEntry[],
  { title, from, at, isOneLock, isPast }: DrawingOptions,
): number {
  const all = lanesOf(history, at);
  const shown = all
    .toSorted((a, b) => b.latest - a.latest)
    .slice(0, MOST_LANES)
    .toSorted(inOrder);
  const width = Math.max(lanesIn.clientWidth, 300);
  const scale = { from, to: at, width };
  const timeline = new Timeline({
    ...scale,
    title: `${title}: ${summaryOf(history)}`,
    height: Math.max(1, shown.length) * LANE,
  });
  const axis = new Timeline({ ...scale, height: 0 });
  const step = STEPS.find((each) => (width * each) / (at - from) >= roomFor(each)) ?? 300_000;
  const marks = marksOf(axis, step);
  timeline.grid(marks);
  axis.axis([from, at], (value) => labelOf(value, step, at, isPast), [...marks, at]);
  // The lines between lanes are behind the bars and the names.
  drawHandOvers(timeline, shown);
  for (const [index, { key, who, slot, entries }] of shown.entries()) {
    const lane = timeline.lane(index * LANE, MIDDLE);
    lane.life(from, at);
    for (const entry of entries) drawEntry(lane, timeline, entry, at);
    const process = `${printable(who)}${slot === undefined ? '' : `, slot ${slot}`}`;
    const characters = Math.floor((width - 30) / NAME_CHARACTER);
    if (isOneLock) lane.name(shortened(process, characters), 14);
    else lane.names(...namesIn(characters, printable(key), process), 14);
  }
  if (shown.length === 0)
    timeline.lane(0, MIDDLE).text('small', timeline.x(from), MIDDLE, 'No events in this time.');
  timeline.showIn(lanesIn);
  axis.showIn(axisIn);
  return all.length - shown.length;
}

function lanesOf(history: readonly HistoryEntry[], now: number): readonly LaneEvents[] {
  const lanes = new Map<string, LaneEvents>();
  for (const entry of history) {
    const { key, who } = entry;
    const slot = entry.kind === 'held' ? entry.slot : undefined;
    const name = JSON.stringify([key, who, slot]);
    const lane = lanes.get(name) ?? { key, who, slot, entries: [], isOwn: false, latest: 0 };
    lanes.set(name, lane);
    lane.entries.push(entry);
    lane.isOwn ||= entry.kind !== 'held' || entry.own;
    lane.latest = Math.max(lane.latest, endOf(entry, now));
  }
  return [...lanes.values()];
}

/** The lanes of a key are neighbours, those of this process first. This order does not depend on the time. */
function inOrder(a: LaneEvents, b: LaneEvents): number {
  const texts = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);
  return (
    texts(a.key, b.key) ||
    Number(b.isOwn) - Number(a.isOwn) ||
    texts(a.who, b.who) ||
    (a.slot ?? -1) - (b.slot ?? -1)
  );
}

/** Shortens a key and the name of a process, so that both fit into this number of characters. */
function namesIn(characters: number, key: string, process: string): readonly [key: string, process: string] {
  const room = characters - Math.min(process.length, Math.floor(characters / 2)) - 2;
  const shown = shortened(key, room);
  return [shown, shortened(process, characters - shown.length - 2)];
}

function roomFor(step: number): number {
  return step >= 60_000 ? MINUTE_ROOM : SECOND_ROOM;
}

/** The round times at which the axis has a label. The end of the axis has its own label. */
function marksOf(timeline: Timeline, step: number): number[] {
  const { from, to } = timeline;
  const marks: number[] = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) {
    const x = timeline.x(at);
    if (x > 0.5 * roomFor(step) && x < timeline.x(to) - 0.8 * roomFor(step)) marks.push(at);
  }
  return marks;
}

function labelOf(value: number, step: number, at: number, isPast: boolean): string {
  if (value === at) return isPast ? 'pause' : 'now';
  return clock(value, step >= 60_000 ? 'minute' : 'second');
}

function drawEntry(lane: Lane, timeline: Timeline, entry: HistoryEntry, at: number): void {
  const title = `${printable(entry.key)}, ${printable(entry.who)}: ${eventText(entry, at)}. From ${clock(startOf(entry), 'millisecond')}.`;
  switch (entry.kind) {
    case 'held': {
      const { asked, from, to = at, end, token } = entry;
      if (asked !== undefined) {
        lane.waits(asked, from, title);
        write(lane, timeline, asked, from, [duration(from - asked)], 'small halo');
      }
      lane.bar('work', from, Math.max(to, from + 1), title);
      const number = token === undefined ? [] : [`#${String(token).slice(-6)}`];
      write(lane, timeline, from, to, [duration(to - from), ...number]);
      if (end === 'lost') drawLoss(lane, timeline, to);
      break;
    }
    case 'waited':
      lane.waits(entry.from, entry.to, title);
      write(lane, timeline, entry.from, entry.to, [duration(entry.to - entry.from)], 'small halo');
      if (entry.outcome === 'unavailable') lane.unavailable(entry.to);
      break;
    case 'skipped':
      lane.skipped(entry.at, title);
      break;
    case 'unconfirmed':
      lane.unavailable(entry.at, title);
      break;
    case 'forced':
      lane.cross(entry.at, 7, title);
      break;
  }
}

/** Marks the loss of a lock beside the end of its bar, or on the bar if there is no room. */
function drawLoss(lane: Lane, timeline: Timeline, at: number): void {
  const x = timeline.x(at);
  const isBeside = x < timeline.x(timeline.to) - 45;
  lane.text('name halo', isBeside ? x + 5 : x - 5, MIDDLE + 4, '! lost', isBeside ? 'start' : 'end');
}

/** Writes the texts on a bar, or the first of them, if there is room. */
function write(
  lane: Lane,
  timeline: Timeline,
  from: number,
  to: number,
  texts: readonly string[],
  style = '',
): void {
  const room = timeline.x(to) - timeline.x(from) - 4;
  const text = [texts.join(' '), texts[0] ?? ''].find(({ length }) => length * TEXT_CHARACTER <= room);
  if (text !== undefined) lane.text(`on-bar ${style}`, timeline.x(from) + 3, MIDDLE + 4, text);
}

/** Draws a line from one holder of a key to the next holder of the key, if the next holder had waited. */
function drawHandOvers(timeline: Timeline, shown: readonly LaneEvents[]): void {
  const holds = shown
    .flatMap(({ entries }, index) =>
      entries.flatMap((entry) => (entry.kind === 'held' ? [{ entry, index }] : [])),
    )
    .toSorted((a, b) => a.entry.from - b.entry.from);
  for (const next of holds) {
    const { asked, from, key } = next.entry;
    if (asked === undefined) continue;
    const before = holds.findLast(
      ({ entry }) =>
        entry.key === key &&
        entry.to !== undefined &&
        Math.abs(from - entry.to) < HAND_OVER_MS &&
        entry.to <= from + 5,
    );
    if (!before || before.index === next.index) continue;
    timeline.lane(before.index * LANE, MIDDLE).handedOver(from, (next.index - before.index) * LANE);
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
