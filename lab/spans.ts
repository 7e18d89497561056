import type { LabEvent } from './lab-event.js';

/** A time in which an instance was dispatching, and believed that it held the lock. */
export interface Span {
  readonly who: string;
  readonly from: number;
  /** `undefined` while it lasts. */
  readonly to?: number;
  /** How long Redis keeps the lock each time that it is told to. */
  readonly ttl?: number;
  /** When its lock ends unless it is renewed. */
  readonly lockEnds?: number;
  readonly token?: number;
  /** Whether there was a lock at all. */
  readonly locked: boolean;
  /** What ended it. */
  readonly end?: LabEvent['kind'];
}

const ENDS: ReadonlySet<LabEvent['kind']> = new Set(['released', 'lost', 'refused', 'failed', 'killed']);

/** @param events - in the order in which they happened */
export function spansOf(events: readonly LabEvent[]): Span[] {
  const spans: Span[] = [];
  const open = new Map<string, number>();
  for (const event of events) {
    const index = open.get(event.who);
    const span = index === undefined ? undefined : spans[index];
    if (event.kind === 'acquired') {
      open.set(event.who, spans.length);
      const { who, at, asked, token, ttl, locked = true } = event;
      // Redis counts from when it executed the command, which is at the earliest when it was sent.
      spans.push({
        who,
        from: at,
        token,
        ttl,
        locked,
        lockEnds: ttl === undefined ? undefined : at - asked + ttl,
      });
    } else if (span && index !== undefined && event.kind === 'renewed') {
      spans[index] = { ...span, lockEnds: event.at + (span.ttl ?? 0) };
    } else if (span && index !== undefined && ENDS.has(event.kind)) {
      spans[index] = { ...span, to: event.at, end: event.kind };
      open.delete(event.who);
    }
  }
  return spans;
}

/** How many spans began while one of another instance lasted. */
export function countOverlaps(spans: readonly Span[]): number {
  return spans.filter(({ who, from }) =>
    spans.some(
      (other) => other.who !== who && other.from < from && (other.to === undefined || other.to > from),
    ),
  ).length;
}

/** How many spans began while the lock of another instance had neither ended nor been given back by it. */
export function countGrantedTwice(spans: readonly Span[]): number {
  return spans.filter(({ who, from }) =>
    spans.some(
      ({ who: owner, from: since, to = Infinity, lockEnds }) =>
        owner !== who && since < from && to > from && lockEnds !== undefined && lockEnds > from,
    ),
  ).length;
}

/** The times in which at least two instances were dispatching. @param now - the end of spans that still last */
export function overlapsOf(spans: readonly Span[], now: number): { from: number; to: number }[] {
  const edges = spans
    .flatMap(({ from, to = now }) => [
      { at: from, step: 1 },
      { at: to, step: -1 },
    ])
    .toSorted((a, b) => a.at - b.at || a.step - b.step);
  const overlaps: { from: number; to: number }[] = [];
  let count = 0;
  let since = 0;
  for (const { at, step } of edges) {
    if (step === 1 && count === 1) since = at;
    if (step === -1 && count === 2) overlaps.push({ from: since, to: at });
    count += step;
  }
  return overlaps;
}
