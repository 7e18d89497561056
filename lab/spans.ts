import type { LabEvent, Rule } from './lab-event.js';

/** A time in which an instance dispatched: the instance believed that it held the lock, or it needed no lock. */
export interface Span {
  readonly who: string;
  readonly from: number;
  /** End of the span; `undefined` while the instance still dispatches. */
  readonly to?: number;
  /** Time for which Redis keeps the lock after each acquisition or extension. */
  readonly ttl?: number;
  /** Time at which the lock ends without another renewal. */
  readonly lockEnds?: number;
  readonly token?: number;
  readonly slot?: number;
  /** True if the instance used a lock. */
  readonly locked: boolean;
  /** Event that ended the time. */
  readonly end?: LabEvent['kind'];
}

const ENDS: ReadonlySet<LabEvent['kind']> = new Set(['released', 'lost', 'refused', 'failed', 'killed']);

/**
 * Returns the spans of all instances.
 *
 * @param events - events in the order of their times
 */
export function spansOf(events: readonly LabEvent[]): Span[] {
  const spans: Span[] = [];
  const open = new Map<string, number>();
  for (const event of events) {
    const index = open.get(event.who);
    const span = index === undefined ? undefined : spans[index];
    if (event.kind === 'acquired') {
      open.set(event.who, spans.length);
      const { who, at, asked, token, slot, ttl, locked = true } = event;
      // `lockEnds` is the earliest possible end of the lock: the instance sent its command at `at - asked`, and Redis
      // counts the ttl from the execution of the command.
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

/** Counts the spans that began during a span of another instance. */
export function countOverlaps(spans: readonly Span[]): number {
  return spans.filter(({ who, from }) =>
    spans.some(
      (other) => other.who !== who && other.from < from && (other.to === undefined || other.to > from),
    ),
  ).length;
}

/** Counts the spans that began during the ttl of a lock that another instance had not released. */
export function countGrantedTwice(spans: readonly Span[]): number {
  return spans.filter(({ who, from }) =>
    spans.some(
      ({ who: owner, from: since, to = Infinity, lockEnds }) =>
        owner !== who && since < from && to > from && lockEnds !== undefined && lockEnds > from,
    ),
  ).length;
}

/** Counts the spans whose beginning broke the rule, because of other spans that had not ended. */
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
 * Counts how often other instances overtook the writer, the instance that asked for an exclusive lock. Counts their
 * dispatches from the writer's request to its acquisition, except the first dispatch of each instance: that instance
 * may have acquired before the request.
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

/** Returns the milliseconds that the instance has waited for its exclusive lock; `undefined` if it did not get the lock. */
export function waitOf(events: readonly LabEvent[]): number | undefined {
  const asking = events.find(({ kind }) => kind === 'asking');
  const turn = events.find(({ kind, who }) => kind === 'acquired' && who === asking?.who);
  return asking && turn && turn.at - asking.at;
}

/**
 * Returns the times in which more instances dispatched than the rule allows.
 *
 * @param now - end of the spans that still last
 */
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
