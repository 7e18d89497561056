/** A step of a protocol: its event, and the state after it. */
export interface Step<State> {
  readonly event: string;
  readonly state: State;
  /** The rule that the step breaks, if any. */
  readonly broken?: string | undefined;
}

/** Result of an exploration. */
export interface Exploration {
  /** Number of visited states. States that differ only in the names of nodes and claims count once. */
  readonly states: number;
  /** A shortest way to break a rule; `undefined` if no reachable state breaks one. */
  readonly counterexample: { readonly broken: string; readonly events: readonly string[] } | undefined;
}

interface Visit {
  readonly event: string;
  readonly before: Visit | undefined;
}

/**
 * Visits every state that can be reached from `starts`, nearest first, and stops at the first broken rule.
 *
 * @param keyOf - returns the same text for equivalent states
 */
export function explore<State>(
  starts: readonly State[],
  stepsOf: (state: State) => Iterable<Step<State>>,
  keyOf: (state: State) => string,
): Exploration {
  const seen = new Set<string>();
  let frontier: { state: State; visit: Visit | undefined }[] = [];
  for (const state of starts) {
    seen.add(keyOf(state));
    frontier.push({ state, visit: undefined });
  }
  while (frontier.length > 0) {
    const next: typeof frontier = [];
    for (const { state, visit } of frontier) {
      for (const step of stepsOf(state)) {
        const reached: Visit = { event: step.event, before: visit };
        if (step.broken !== undefined) {
          return { states: seen.size, counterexample: { broken: step.broken, events: eventsOf(reached) } };
        }
        const key = keyOf(step.state);
        if (seen.has(key)) continue;
        seen.add(key);
        next.push({ state: step.state, visit: reached });
      }
    }
    frontier = next;
  }
  return { states: seen.size, counterexample: undefined };
}

function eventsOf(last: Visit): string[] {
  const events: string[] = [];
  for (let visit: Visit | undefined = last; visit; visit = visit.before) events.unshift(visit.event);
  return events;
}
