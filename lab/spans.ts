import type { LabEvent, Rule } from './lab-event.js';

/** A time in which an instance was dispatching, and believed that it held the lock. */
export interface Span {
  readonly who: string;
  readonly from: number;
  /** `undefined` while it lasts. */
  readonly to?: number;
  /** Time for which Redis keeps the lock after each acquisition or extension. */
  readonly ttl?: number;
  /** When its lock ends unless it is renewed. */
  readonly lockEnds?: number;
  readonly token?: number;
  readonly slot?: number;
  /** True if there was a lock. */
  readonly locked: boolean;
  /** Cause of its end. */
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
      const { who, at, asked, token, slot, ttl, locked = true } = event;
      // Redis counts from when it executed the command, which is at the earliest when it was sent.
      spans.push({
        who,
        from: at,
        token,
        slot,
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

/** Number of spans that began during a span of another instance. */
export function countOverlaps(spans: readonly Span[]): number {
  return spans.filter(({ who, from }) =>
    spans.some(
      (other) => other.who !== who && other.from < from && (other.to === undefined || other.to > from),
    ),
  ).length;
}

/** Number of spans that began while another instance's lock had neither ended nor been released by it. */
export function countGrantedTwice(spans: readonly Span[]): number {
  return spans.filter(({ who, from }) =>
    spans.some(
      ({ who: owner, from: since, to = Infinity, lockEnds }) =>
        owner !== who && since < from && to > from && lockEnds !== undefined && lockEnds > from,
    ),
  ).length;
}

/** Number of spans that began while the number of others broke the rule. */
export function countTooMany(spans: readonly Span[], rule: Rule): number {
  return spans.filter(({ who, from }, index) => {
    const others = spans.filter(
      (other, at) =>
        other.who !== who && at < index && (other.to === undefined || other.to > from) && other.from <= from,
    );
    return breaks(rule, [who, ...others.map((other) => other.who)]);
  }).length;
}

/**
 * Number of times that an instance began to work again after another one asked for an exclusive lock: so it came later
 * than that one.
 */
export function countOvertakes(events: readonly LabEvent[]): number {
  const asked = events.findIndex(({ kind }) => kind === 'asking');
  if (asked === -1) return 0;
  const since = events.slice(asked);
  const turn = since.findIndex(({ kind, who }) => kind === 'acquired' && who === events[asked]?.who);
  const began = since
    .slice(0, turn === -1 ? undefined : turn)
    .filter((event) => event.kind === 'read' && event.tasks > 0);
  return began.length - new Set(began.map(({ who }) => who)).size;
}

/** Wait in milliseconds of the waiter for an exclusive lock; `undefined` when it did not acquire. */
export function waitOf(events: readonly LabEvent[]): number | undefined {
  const asking = events.find(({ kind }) => kind === 'asking');
  const turn = events.find(({ kind, who }) => kind === 'acquired' && who === asking?.who);
  return asking && turn && turn.at - asking.at;
}

/** The times in which more were dispatching than may. @param now - the end of spans that still last */
export function overlapsOf(
  spans: readonly Span[],
  now: number,
  rule: Rule = {},
): { from: number; to: number }[] {
  const edges = spans
    .flatMap(({ who, from, to = now }) => [
      { who, at: from, step: 1 },
      { who, at: to, step: -1 },
    ])
    .toSorted((a, b) => a.at - b.at || a.step - b.step);
  const overlaps: { from: number; to: number }[] = [];
  const present: string[] = [];
  let since: number | undefined;
  for (const { who, at, step } of edges) {
    if (step === 1) present.push(who);
    else present.splice(present.indexOf(who), 1);
    const broken = breaks(rule, present);
    if (broken) since ??= at;
    else if (since !== undefined) {
      overlaps.push({ from: since, to: at });
      since = undefined;
    }
  }
  return overlaps;
}

function breaks({ atOnce = 1, writer }: Rule, present: readonly string[]): boolean {
  return present.length > atOnce || (present.length > 1 && writer !== undefined && present.includes(writer));
}
