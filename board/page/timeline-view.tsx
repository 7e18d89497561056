import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { HistoryEntry } from '../../lib/board/live/messages.js';
import { drawLegend, MARKS } from '../timeline/timeline.js';
import { now } from './connection.js';
import { EventTable } from './event-table.js';
import { endOf } from './event-text.js';
import { drawTimeline, MOST_LANES } from './timeline-drawing.js';

/** The lengths of time that the timeline can show. */
const WINDOWS: readonly (readonly [milliseconds: number, name: string])[] = [
  [30_000, '30 s'],
  [120_000, '2 min'],
  [600_000, '10 min'],
];

interface TimelineProps {
  readonly title: string;
  readonly history: readonly HistoryEntry[];
  readonly back: number;
  readonly setBack: (milliseconds: number) => void;
  /** The history is of a single lock, so that its key is not shown again. */
  readonly isOneLock?: boolean;
  readonly note?: string | undefined;
}

/** A time, and the history that was known at it. */
interface Moment {
  readonly at: number;
  readonly history: readonly HistoryEntry[];
}

/** Shows the events of one lock, or of all locks with a prefix, in the last minutes. */
export function TimelineView({ title, history, back, setBack, isOneLock = false, note }: TimelineProps) {
  const lanes = useRef<HTMLDivElement>(null);
  const axis = useRef<HTMLDivElement>(null);
  const legend = useRef<HTMLUListElement>(null);
  const paused = useSignal<Moment | undefined>(undefined);
  const pointedAt = useSignal<Moment | undefined>(undefined);
  const hidden = useSignal(0);
  const latest: Moment = { at: now.value, history };
  // The drawing does not move under the pointer, so that its tooltips can be read.
  const moment = paused.value ?? pointedAt.value ?? latest;
  const { at } = moment;
  const from = at - back;
  const recent = moment.history.filter((entry) => endOf(entry, at) >= from);
  useEffect(() => {
    if (legend.current) drawLegend(legend.current, LEGEND);
  }, []);
  useEffect(() => {
    if (!lanes.current || !axis.current) return;
    const isPast = paused.value !== undefined;
    hidden.value = drawTimeline(lanes.current, axis.current, recent, { title, from, at, isOneLock, isPast });
  }, [moment.history, at, title, back, isOneLock, paused.value]);
  return (
    <section class="timeline-view" aria-label="Timeline">
      <div class="choices" role="group" aria-label="Time of the timeline">
        {WINDOWS.map(([milliseconds, name]) => (
          <button
            key={name}
            type="button"
            aria-pressed={milliseconds === back}
            onClick={() => setBack(milliseconds)}
          >
            {name}
          </button>
        ))}
        <button
          type="button"
          aria-pressed={paused.value !== undefined}
          onClick={() => (paused.value = paused.value ? undefined : moment)}
        >
          Pause
        </button>
      </div>
      <div
        class="scroll"
        tabIndex={0}
        role="group"
        aria-label="Drawing"
        onPointerEnter={({ pointerType }) => {
          if (pointerType === 'mouse') pointedAt.value = moment;
        }}
        onPointerLeave={() => (pointedAt.value = undefined)}
      >
        <div ref={lanes} />
        <div class="axis-row" ref={axis} />
      </div>
      {hidden.value > 0 && (
        <p class="note">
          These are the {MOST_LANES} lanes with the latest events; {hidden.value} more have no room. Search
          for a part of a key to see them.
        </p>
      )}
      {note !== undefined && <p class="note">{note}</p>}
      <ul class="legend" ref={legend} />
      <EventTable history={recent} isOneLock={isOneLock} at={at} />
    </section>
  );
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
