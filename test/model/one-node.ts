import type { Step } from './explore.js';
import {
  acquireRecord,
  extendRecord,
  isHeld,
  type LockRecord,
  nextToken,
  raiseRecord,
  recordAt,
  type RecordNode,
  type RecordRules,
  releaseRecord,
} from './record.js';

// This search has one node, one watched claim, and other claims, which may send anything at any time. The node executes a
// message late, again, or never. The clock advances by ticks, and falls any number of times, as far as the scope allows.
//
// One watched claim is enough, because each rule is about one claim. When the node has no trace of the claim, the search
// watches another one. A clock that steps ahead equals some ticks without messages.

const { max } = Math;
const { fromCharCode } = String;

const WATCHED = 0;
const OTHER = 1;
const ANOTHER = 2;

/** Limits of an exploration. */
export interface NodeScope {
  readonly rules: RecordRules;
  readonly ttl: number;
  /** Ticks from the invocation to the deadline. */
  readonly limit: number;
  /** Largest fall of the clock below its latest value. */
  readonly back: number;
  /** Number of falls; unlimited by default. */
  readonly falls?: number;
  /**
   * Largest lead of tokens over the latest value of the clock. Tokens get ahead when the clocks of other nodes are
   * ahead, when a request proposes a token, and when a token is the last token plus one.
   */
  readonly ahead: number;
  /** True if tokens are raised, as with several nodes; true by default. */
  readonly raises?: boolean;
  /** Ticks for which a release may keep the record, which then still blocks other claims; none by default. */
  readonly keep?: number;
  /** True if memory may be short at a release. */
  readonly short?: boolean;
  /** Number of data losses. */
  readonly losses?: number;
  /** Number of restarts with older data. */
  readonly crashes?: number;
}

type Watched = 'not granted' | 'held' | 'lapsed' | 'released';

export interface OneNode {
  readonly clock: number;
  readonly fallen: number;
  readonly falls: number | undefined;
  readonly node: RecordNode;
  readonly saved: RecordNode | undefined;
  /** Deadline of the claim's acquisition; `undefined` before its invocation and after its end. */
  readonly deadline: number | undefined;
  readonly watched: Watched;
  /** The claim has sent a release, and counts no answer any more. */
  readonly done: boolean;
  /** The token in the claim's answer; during a raise, the token to which the claim raises. */
  readonly token: number | undefined;
  readonly raising: boolean;
  /** Ticks for which the claim may rely on this node. */
  readonly sure: number;
  /** The largest token of all grants and raises. */
  readonly top: number | undefined;
  /** The claim of the last grant. */
  readonly last: number | undefined;
  readonly losses: number;
  readonly crashes: number;
}

const EMPTY: RecordNode = { record: undefined, marker: undefined, born: undefined };

const FRESH = { watched: 'not granted', done: false, token: undefined, raising: false, sure: 0 } as const;

export function oneNode({ falls, losses = 0, crashes = 0 }: NodeScope): OneNode {
  return {
    clock: 0,
    fallen: 0,
    falls,
    node: EMPTY,
    saved: crashes > 0 ? EMPTY : undefined,
    deadline: undefined,
    ...FRESH,
    top: undefined,
    last: undefined,
    losses,
    crashes,
  };
}

export function oneNodeSteps(scope: NodeScope): (world: OneNode) => Step<OneNode>[] {
  return (world) => {
    const steps: Step<OneNode>[] = [];
    for (const step of changes(world, scope)) {
      steps.push({
        ...step,
        state: normal(step.state, scope),
        broken: step.broken ?? revived(world, step.state, scope),
      });
    }
    return steps;
  };
}

function* changes(world: OneNode, scope: NodeScope): Generator<Step<OneNode>> {
  const { clock, fallen, node } = world;
  yield {
    event: 'a tick',
    state: { ...world, clock: clock + 1, fallen: max(0, fallen - 1), sure: max(0, world.sure - 1) },
  };
  const falls = world.falls === undefined ? undefined : world.falls - 1;
  const most = falls === -1 ? 0 : scope.back - fallen;
  for (let by = 1; by <= most; by++) {
    yield {
      event: `the clock falls by ${by}`,
      state: { ...world, falls, clock: clock - by, fallen: fallen + by },
    };
  }
  if (node.record && !recordAt(node, clock)) {
    yield { event: 'Redis deletes the record', state: { ...world, node: { ...node, record: undefined } } };
  }
  if (world.losses > 0) {
    const lost = { ...world, losses: world.losses - 1, node: { ...EMPTY, born: clock } };
    yield { event: 'the data is lost', state: { ...lost, watched: 'not granted', sure: 0 } };
  }
  if (world.crashes > 0 && world.saved) {
    if (world.saved !== node) yield { event: 'the data is saved', state: { ...world, saved: node } };
    const back = { ...world, crashes: world.crashes - 1, node: { ...world.saved, born: clock } };
    yield { event: 'a crash', state: { ...back, watched: 'not granted', sure: 0 } };
  }
  if (world.deadline === undefined && node.record?.id !== WATCHED && world.saved?.record?.id !== WATCHED) {
    yield { event: 'the claim is invoked', state: { ...world, ...FRESH, deadline: clock + scope.limit } };
  }
  yield* acquisitions(world, scope);
  for (const id of [WATCHED, OTHER]) yield* otherMessages(world, scope, id);
}

function* acquisitions(world: OneNode, scope: NodeScope): Generator<Step<OneNode>> {
  const { clock, node } = world;
  const { rules, ttl } = scope;
  yield* duplicates(world, scope);
  const others = node.record?.id === OTHER ? ANOTHER : OTHER;
  const most = mostOf(world, scope);
  for (const id of world.deadline === undefined ? [others] : [WATCHED, others]) {
    const deadline = id === WATCHED ? world.deadline! : clock;
    for (let proposal = nextToken(node, clock, rules); proposal <= most; proposal++) {
      const granted = acquireRecord(node, clock, { id, ttl, deadline, proposal }, rules);
      if (!granted || granted.node === node || granted.token > most) break;
      const { token } = granted;
      const broken =
        world.top !== undefined && token <= world.top
          ? `tokens: ${token} is granted after ${world.top}`
          : id !== WATCHED && world.sure > 0
            ? 'exclusion: another claim is granted while the claim relies on the node'
            : undefined;
      const event = `${nameOf(id)} acquires: ${token}`;
      const after = { ...world, node: granted.node, top: token, last: id };
      if (id !== WATCHED) {
        yield { event, state: { ...after, watched: 'not granted', sure: 0 }, broken };
        continue;
      }
      const watched = world.watched === 'not granted' ? 'held' : world.watched;
      const state: OneNode = { ...after, watched, sure: world.done ? 0 : ttl };
      yield { event: `${event}, unheard`, state, broken };
      if (world.token === undefined && !world.done) yield { event, state: { ...state, token }, broken };
    }
  }
}

/**
 * The node grants a duplicate of an acquisition again while the lock is held, also after the deadline of the
 * acquisition. The duplicate does not change the node; only the claim learns something new.
 */
function* duplicates(world: OneNode, { rules, ttl }: NodeScope): Generator<Step<OneNode>> {
  const { clock, node, top } = world;
  const { record } = node;
  const message = { id: WATCHED, ttl, deadline: clock - 1, proposal: clock };
  const granted = acquireRecord(node, clock, message, rules);
  if (!record || granted?.node !== node || world.token !== undefined || world.done) return;
  const { token } = granted;
  yield {
    event: `the claim acquires again: ${token}`,
    // The validity counts from the first send, so it ends while the record is still held.
    state: { ...world, watched: 'held', token, sure: max(world.sure, record.end - rules.linger - clock) },
    broken:
      world.last !== WATCHED
        ? 'duplicate: the claim is granted again, though another was granted since'
        : token < top!
          ? `duplicate: the claim is granted ${token} again where ${top!} was seen`
          : undefined,
  };
}

function* otherMessages(world: OneNode, scope: NodeScope, id: number): Generator<Step<OneNode>> {
  const { clock, node, top } = world;
  const { rules, ttl } = scope;
  const extended = extendRecord(node, clock, { id, ttl }, rules);
  if (extended && extended.record?.end !== node.record?.end) {
    // An extension prolongs the validity of the claim only if the validity has not ended yet.
    const counts = id === WATCHED && world.sure > 0;
    yield {
      event: `${nameOf(id)} extends`,
      state: { ...world, node: extended, sure: counts ? ttl : world.sure },
      broken:
        id === WATCHED && !world.done && world.last === OTHER
          ? 'extending: the claim extends, though another was granted since'
          : undefined,
    };
  }
  // The claim has sent a release, which the node may or may not have executed yet.
  const givenUp = { ...world, done: true, sure: 0, token: undefined, raising: false };
  if (id === WATCHED && !world.done && world.deadline !== undefined) {
    yield { event: 'the claim gives up', state: givenUp };
  }
  const { keep = 0 } = scope;
  const releases = [
    { id, keep: 0, short: false },
    ...(scope.short ? [{ id, keep: 0, short: true }] : []),
    ...(keep > 0 ? [{ id, keep, short: false }] : []),
  ];
  for (const release of releases) {
    const released = releaseRecord(node, clock, release, rules);
    if (!released) continue;
    const state: OneNode =
      id === WATCHED
        ? {
            ...givenUp,
            node: released,
            watched: world.watched === 'not granted' ? 'not granted' : 'released',
          }
        : { ...world, node: released };
    yield { event: `${nameOf(id)} releases`, state };
  }
  if (scope.raises === false) return;
  // The search judges only the raises of the watched claim, because every claim can be the watched one.
  const counts = id === WATCHED && world.token !== undefined;
  // A claim raises only on a node whose grant it has received.
  if (id === WATCHED && !counts && !world.done) return;
  const least = counts ? world.token : lowOf(world, scope) - 1;
  const most = counts && world.raising ? world.token : mostOf(world, scope);
  for (let token = least; token <= most; token++) {
    const raised = raiseRecord(node, clock, { id, token }, rules);
    if (!raised) continue;
    const broken = !counts
      ? undefined
      : world.last !== WATCHED
        ? 'raising: the claim raises, though another was granted since'
        : token < top!
          ? `raising: the claim counts on ${token} where ${top!} was seen`
          : undefined;
    const state = { ...world, node: raised, top: top === undefined ? token : max(top, token) };
    yield {
      event: `${nameOf(id)} raises to ${token}`,
      state: counts ? { ...state, token, raising: true } : state,
      broken,
    };
  }
}

/**
 * A released claim must never hold the lock again. A lapsed claim may do so only in a step in which the clock falls.
 */
function revived(before: OneNode, after: OneNode, { rules }: NodeScope): string | undefined {
  const { record } = after.node;
  if (record?.id !== WATCHED || !isHeld(recordAt(after.node, after.clock), after.clock, rules))
    return undefined;
  if (after.watched === 'released') return 'revival: what was released is held again';
  const fell = after.clock < before.clock;
  return after.watched === 'lapsed' && !fell ? 'revival: what had lapsed is held again' : undefined;
}

function nameOf(id: number): string {
  return id === WATCHED ? 'the claim' : 'another';
}

function mostOf({ clock, fallen }: OneNode, { ahead }: NodeScope): number {
  return clock + fallen + ahead;
}

/** Returns the lowest time to which the clock can fall. */
function lowOf({ clock, fallen }: OneNode, { back }: NodeScope): number {
  return clock + fallen - back;
}

/** Returns the same world at clock 0, without values that can no longer matter. */
function normal(world: OneNode, scope: NodeScope): OneNode {
  const { clock } = world;
  const low = lowOf(world, scope);
  const tokenOf = (token: number): number => max(token, low - 1) - clock;
  const nodeOf = ({ record, marker, born }: RecordNode): RecordNode => ({
    record:
      record && record.end > low
        ? {
            ...record,
            id: record.id === ANOTHER ? OTHER : record.id,
            token: tokenOf(record.token),
            end: record.end - clock,
          }
        : undefined,
    marker: marker === undefined || marker < low ? undefined : marker - clock,
    born: born === undefined || low - born >= scope.rules.guard ? undefined : born - clock,
  });
  const node = nodeOf(world.node);
  const saved = world.crashes > 0 && world.saved ? nodeOf(world.saved) : undefined;
  const own = node.record?.id === WATCHED;
  const held = own && isHeld(recordAt(node, 0), 0, scope.rules);
  // Without a deadline, the node may execute the acquisition at any later time.
  const over = scope.rules.deadline && world.deadline !== undefined && world.deadline < low;
  const gone = over && !own && saved?.record?.id !== WATCHED;
  let { watched } = world;
  if (watched === 'held' && !held) watched = 'lapsed';
  else if (watched === 'lapsed' && held) watched = 'held';
  return {
    clock: 0,
    fallen: world.fallen,
    falls: world.falls,
    node,
    saved,
    deadline: world.deadline === undefined || over ? undefined : max(world.deadline - clock, -scope.back - 1),
    watched: gone ? 'not granted' : watched,
    done: gone ? false : world.done,
    token: gone || world.token === undefined ? undefined : tokenOf(world.token),
    raising: gone ? false : world.raising,
    sure: gone ? 0 : world.sure,
    top: world.top === undefined ? undefined : tokenOf(world.top),
    last: world.last === undefined ? undefined : world.last === WATCHED ? WATCHED : OTHER,
    losses: world.losses,
    crashes: world.crashes,
  };
}

const STATES: readonly LockRecord['state'][] = ['held', 'kept', 'free'];
const WATCHES: readonly Watched[] = ['not granted', 'held', 'lapsed', 'released'];

/** Returns the same text for equivalent worlds. */
export function oneNodeKey(world: OneNode): string {
  const { node, saved, watched } = world;
  return fromCharCode(
    world.fallen,
    code(world.falls),
    ...codesOf(node),
    ...(saved ? codesOf(saved) : []),
    code(world.deadline),
    WATCHES.indexOf(watched) * 4 + Number(world.done) * 2 + Number(world.raising),
    code(world.token),
    world.sure,
    code(world.top),
    code(world.last),
    world.losses,
    world.crashes,
  );
}

function codesOf({ record, marker, born }: RecordNode): number[] {
  return [
    record ? record.id * STATES.length + STATES.indexOf(record.state) + 1 : 0,
    code(record?.token),
    code(record?.end),
    code(marker),
    code(born),
  ];
}

function code(value: number | undefined): number {
  return value === undefined ? 0 : value + 1_000;
}
