// What one node does with the record of a lock, as pure functions: what the Lua scripts do, and nothing else.
// `one-node.test.ts` searches every order of messages and clocks for a way around each rule, and `node.test.ts` shows
// that the stores answer the same.
//
// Times are those of the node's clock, tokens are on the same scale: a token is at least the clock at its grant.

// Jest's sandbox makes globals slow.
const { max } = Math;

/** The value of the key, and when Redis forgets it. */
export interface LockRecord {
  readonly id: number;
  readonly token: number;
  /** `'kept'` for a while after the release (`minHold`): in the way of others, and held by nobody. */
  readonly state: 'held' | 'kept' | 'free';
  readonly end: number;
}

/** One key on one node. */
export interface RecordNode {
  readonly record: LockRecord | undefined;
  /** The highest token, of any key, that was ahead of the clock by more than the lead. */
  readonly marker: number | undefined;
  /** When the node was found without its data; `undefined` when it has voted long enough. */
  readonly born: number | undefined;
}

/** The rules of a node. Only {@link RIGHT} is right; the tests say what each of the flags is for. */
export interface RecordRules {
  readonly linger: number;
  readonly lead: number;
  /** Ticks for which a node that lost its data grants nothing. */
  readonly guard: number;
  /** A duplicate of an acquisition that is not held any more is refused while the record bears its id. */
  readonly refuseOwn: boolean;
  /** An acquisition does nothing after its deadline. */
  readonly deadline: boolean;
  /** The new token is above the one of the record. */
  readonly above: boolean;
  /** Events that raise the marker. */
  readonly marker: 'grants and raises' | 'grants' | 'raises' | 'nothing';
  /** When the new token is above the marker. */
  readonly aboveMarker: 'always' | 'without a record' | 'never';
  /** Raising counts while the record is held. */
  readonly raiseHeld: boolean;
  /** Raising counts up to the token. */
  readonly raiseUpTo: boolean;
  /** Extending counts while the record is held. */
  readonly extendHeld: boolean;
  /** Extending counts for the owner. */
  readonly extendOwn: boolean;
  /** A release writes the flag `free`. */
  readonly free: boolean;
  /** A release keeps the record for the linger. */
  readonly lingers: boolean;
}

export const RIGHT: RecordRules = {
  linger: 3,
  lead: 1,
  guard: 0,
  refuseOwn: true,
  deadline: true,
  above: true,
  marker: 'grants and raises',
  aboveMarker: 'always',
  raiseHeld: true,
  raiseUpTo: true,
  extendHeld: true,
  extendOwn: true,
  free: true,
  lingers: true,
};

export function recordAt({ record }: RecordNode, now: number): LockRecord | undefined {
  return record && now < record.end ? record : undefined;
}

function isTaken(record: LockRecord | undefined, now: number, { linger }: RecordRules): boolean {
  return record !== undefined && record.state !== 'free' && record.end - now > linger;
}

export function isHeld(record: LockRecord | undefined, now: number, rules: RecordRules): boolean {
  return isTaken(record, now, rules) && record?.state === 'held';
}

function isGuarded({ born }: RecordNode, now: number, { guard }: RecordRules): boolean {
  return born !== undefined && now - born < guard;
}

function lifted(
  node: RecordNode,
  token: number,
  now: number,
  rules: RecordRules,
  by: 'grants' | 'raises',
): RecordNode {
  if (!rules.marker.includes(by) || token <= now + rules.lead) return node;
  return { ...node, marker: max(node.marker ?? token, token) };
}

/** The smallest token that the node may grant. */
export function nextToken(node: RecordNode, now: number, rules: RecordRules): number {
  const record = recordAt(node, now);
  const { above, aboveMarker } = rules;
  let least = now;
  if (record && above) least = max(least, record.token + 1);
  const looksAtMarker = record ? aboveMarker === 'always' : aboveMarker !== 'never';
  if (looksAtMarker && node.marker !== undefined) least = max(least, node.marker + 1);
  return least;
}

/**
 * A duplicate of an acquisition that is held is granted again, by the token that the record has, whatever its deadline and
 * the guard: it changes nothing, and says what a late reply would say.
 *
 * @param proposal - any number: the token is at least this, so that nodes agree, or the keys of one lock
 * @returns the node, the same one when it is granted again, and the token; nothing when the node refuses
 */
export function acquireRecord(
  node: RecordNode,
  now: number,
  message: {
    readonly id: number;
    readonly ttl: number;
    readonly deadline: number;
    readonly proposal: number;
  },
  rules: RecordRules,
): { readonly node: RecordNode; readonly token: number } | undefined {
  const record = recordAt(node, now);
  if (record?.id === message.id && isHeld(record, now, rules)) return { node, token: record.token };
  if (isTaken(record, now, rules)) return undefined;
  if (rules.refuseOwn && record?.id === message.id) return undefined;
  if (rules.deadline && now > message.deadline) return undefined;
  if (isGuarded(node, now, rules)) return undefined;
  const token = max(nextToken(node, now, rules), message.proposal);
  const written = { id: message.id, token, state: 'held', end: now + message.ttl + rules.linger } as const;
  return { node: { ...lifted(node, token, now, rules, 'grants'), record: written }, token };
}

/** @returns the node; nothing when it refuses */
export function raiseRecord(
  node: RecordNode,
  now: number,
  { id, token }: { readonly id: number; readonly token: number },
  rules: RecordRules,
): RecordNode | undefined {
  const record = recordAt(node, now);
  if (record?.id !== id) return undefined;
  if (rules.raiseHeld && !isHeld(record, now, rules)) return undefined;
  if (rules.raiseUpTo && record.token > token) return undefined;
  const raised = { ...record, token: max(record.token, token) };
  return { ...lifted(node, token, now, rules, 'raises'), record: raised };
}

/**
 * An older extension that was delayed must not cut short what a newer one promised.
 *
 * @returns the node; nothing when it refuses
 */
export function extendRecord(
  node: RecordNode,
  now: number,
  { id, ttl }: { readonly id: number; readonly ttl: number },
  rules: RecordRules,
): RecordNode | undefined {
  const record = recordAt(node, now);
  if (!record || (rules.extendOwn && record.id !== id)) return undefined;
  if (rules.extendHeld ? !isHeld(record, now, rules) : record.state !== 'held') return undefined;
  return { ...node, record: { ...record, end: max(record.end, now + ttl + rules.linger) } };
}

/**
 * @param keep - for how long the record stays in the way of others; 0 to free it
 * @param short - the node is out of memory, and can shorten the life of a key but write none
 * @returns the node; nothing when it has no record of the id, or has released it
 */
export function releaseRecord(
  node: RecordNode,
  now: number,
  { id, keep, short }: { readonly id: number; readonly keep: number; readonly short: boolean },
  rules: RecordRules,
): RecordNode | undefined {
  const record = recordAt(node, now);
  if (record?.id !== id || record.state !== 'held') return undefined;
  if (!rules.lingers) return { ...node, record: undefined };
  const released = keep > 0 ? 'kept' : 'free';
  return {
    ...node,
    record: {
      ...record,
      state: rules.free && !short ? released : 'held',
      end: now + keep + rules.linger,
    },
  };
}
