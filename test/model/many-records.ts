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

// This model has a node with several keys, and locks of several keys. A lock follows `record.ts` for each of its keys, all
// or nothing.

const { max, min } = Math;

export interface Claim {
  readonly id: number;
  readonly keys: readonly string[];
}

/** All keys of one node. */
export interface Records {
  readonly records: ReadonlyMap<string, LockRecord>;
  readonly marker: number | undefined;
  readonly born: number | undefined;
}

/** The node after a message, and its answer to each claim. */
interface Step<Answer> {
  readonly after: Records;
  readonly answers: readonly Answer[];
}

function nodeOf({ records, marker, born }: Records, key: string): RecordNode {
  return { record: records.get(key), marker, born };
}

function stored(before: Records, keys: readonly string[], nodes: readonly RecordNode[]): Records {
  const records = new Map(before.records);
  keys.forEach((key, index) => {
    const record = nodes[index]?.record;
    if (record) records.set(key, record);
    else records.delete(key);
  });
  const markers = [before.marker, ...nodes.map(({ marker }) => marker)].filter((one) => one !== undefined);
  return { ...before, records, marker: markers.length > 0 ? max(...markers) : undefined };
}

/** Applies a message to every key. Returns the results, or `undefined` if one key refuses. */
function all<Result>(claim: Claim, apply: (key: string) => Result | undefined): Result[] | undefined {
  const results = claim.keys.map(apply);
  return results.some((result) => result === undefined) ? undefined : (results as Result[]);
}

/**
 * Acquires for all claims in one command, which reads the marker once.
 *
 * @param proposal - the node limits it to its own clock plus the lead, so that the wrong clock of one client does not
 * raise the marker of every node
 */
export function acquireAll(
  before: Records,
  claims: readonly Claim[],
  now: number,
  { ttl, deadline, proposal }: { readonly ttl: number; readonly deadline: number; readonly proposal: number },
  rules: RecordRules,
): Step<number | undefined> {
  let after = before;
  const answers = claims.map((claim) => {
    const nodes = claim.keys.map((key) => nodeOf({ ...after, marker: before.marker }, key));
    const least = max(min(proposal, now + rules.lead), ...nodes.map((node) => nextToken(node, now, rules)));
    const message = { id: claim.id, ttl, deadline, proposal: least };
    const granted = all(claim, (key) =>
      acquireRecord(nodeOf({ ...after, marker: before.marker }, key), now, message, rules),
    );
    if (!granted) return undefined;
    const isHeldAlready = (key: string): boolean => {
      const record = recordAt(nodeOf(after, key), now);
      return record?.id === claim.id && isHeld(record, now, rules);
    };
    const again = claim.keys.filter(isHeldAlready).length;
    if (again > 0) return again === claim.keys.length ? granted[0]?.token : undefined;
    after = stored(
      after,
      claim.keys,
      granted.map(({ node }) => node),
    );
    return granted[0]?.token;
  });
  return { after, answers };
}

export function raiseAll(
  before: Records,
  claim: Claim,
  now: number,
  token: number,
  rules: RecordRules,
): Step<boolean> {
  const raised = all(claim, (key) => raiseRecord(nodeOf(before, key), now, { id: claim.id, token }, rules));
  return { after: raised ? stored(before, claim.keys, raised) : before, answers: [raised !== undefined] };
}

export function extendAll(
  before: Records,
  claims: readonly Claim[],
  now: number,
  ttl: number,
  rules: RecordRules,
): Step<boolean> {
  let after = before;
  const answers = claims.map((claim) => {
    const extended = all(claim, (key) => extendRecord(nodeOf(after, key), now, { id: claim.id, ttl }, rules));
    if (extended) after = stored(after, claim.keys, extended);
    return extended !== undefined;
  });
  return { after, answers };
}

export function releaseAll(
  before: Records,
  claims: readonly (Claim & { readonly keep: number })[],
  now: number,
  rules: RecordRules,
): Records {
  let after = before;
  for (const { id, keys, keep } of claims)
    for (const key of keys) {
      const released = releaseRecord(nodeOf(after, key), now, { id, keep, short: false }, rules);
      if (released) after = stored(after, [key], [released]);
    }
  return after;
}
