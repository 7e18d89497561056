// This model has the rules of one node for the record of a lock, as pure functions. The Lua scripts follow the same rules.
// `one-node.test.ts` searches every order of messages and clocks for a way around each rule. `node.test.ts` shows that the
// stores give the same answers.
//
// Times are those of the node's clock. Tokens have the same scale: a token is at least the clock at its grant.

// Jest's sandbox makes globals slow.
const { max } = Math;

/** The value of the key, and the time at which Redis forgets the key. */
export interface LockRecord {
  readonly id: number;
  readonly token: number;
  /** `'kept'` after a release with `minHold`: the record has no holder, but still blocks other claims until its end. */
  readonly state: 'held' | 'kept' | 'free';
  readonly end: number;
}

/** One key on one node. */
export interface RecordNode {
  readonly record: LockRecord | undefined;
  /** The highest token, of any key, that was further ahead of the clock than the lead. */
  readonly marker: number | undefined;
  /** Time at which the node had lost its data; `undefined` if the guard has passed. */
  readonly born: number | undefined;
}

/** The rules of a node. Only {@link RIGHT} is right; the tests show the purpose of each flag. */
export interface RecordRules {
  /** Ticks for which the node keeps a record after the end of its lock. */
  readonly linger: number;
  /** A token that is more than this number of ticks ahead of the clock raises the marker. */
  readonly lead: number;
  /** Ticks for which a node that lost its data grants nothing. */
  readonly guard: number;
  /**
   * The node refuses a duplicate of an acquisition whose lock has ended, while the record still has the id of that
   * lock.
   */
  readonly refuseOwn: boolean;
  /** The node refuses an acquisition after its deadline. */
  readonly deadline: boolean;
  /** A new token is larger than the record's. */
  readonly above: boolean;
  /** Events that raise the marker. */
  readonly marker: 'grants and raises' | 'grants' | 'raises' | 'nothing';
  /** Cases in which a new token is larger than the marker. */
  readonly aboveMarker: 'always' | 'without a record' | 'never';
  /** The node raises the token of a record only while the record is held. */
  readonly raiseHeld: boolean;
  /** The node refuses a raise below the record's token. */
  readonly raiseUpTo: boolean;
  /** The node extends only a held record. */
  readonly extendHeld: boolean;
  /** The node extends only for the record's owner. */
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

/** Returns the smallest token that the node may grant. */
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
 * Grants a lock. A duplicate of an acquisition whose lock is still held is granted again with the record's token, also
 * after the deadline and under the guard. The duplicate changes nothing, and its answer equals a late reply to the
 * first request.
 *
 * @param message - the request. All nodes, or all keys of one lock, get the same `proposal`, a lower bound of the token,
 *   so that they grant the same token.
 * @returns the node after the grant, and the token; `undefined` if the node refuses. For a duplicate, the node is
 *   unchanged.
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

/**
 * Raises the token of a record, so that a quorum of nodes has one token for the lock.
 *
 * @returns the node after the raise; `undefined` if the node refuses
 */
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
 * Extends a lock. A late extension must not shorten a newer one.
 *
 * @returns the node after the extension; `undefined` if the node refuses
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
 * @param keep - ticks for which the record still blocks other claims; 0 frees the record
 * @param short - true if the node is out of memory: it can then shorten the life of a key, but cannot write a key
 * @returns the node after the release; `undefined` if the node has no record of the id, or has released that record
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
