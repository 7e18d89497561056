import { BY_PRIMARY, ID, JSON_TEXT, KEY, type Procedure, TEXT } from './procedure.js';

/** The rows of a JSON array of keys to extend, as `part`. The server must read them first: a `straight_join` follows. */
const PARTS = `json_table(a_parts, '$[*]' columns (
      i int path '$.i', n int path '$.n', id ${ID} path '$.id', ttl double path '$.ttl', slot int path '$.slot',
      several tinyint path '$.several', k varchar(2048) character set utf8mb4 path '$.k')) part`;

/**
 * The longest ttl of each key, or of each lease of each key, as `longest`. An UPDATE with a join changes a row only once,
 * even if several leases of a key, or several extensions of a lease, match it. Needed only for keys in several
 * extensions, because grouping doubles the time.
 */
const longestOf = (...columns: string[]): string => {
  const of = columns.map((column) => `, part.${column}`).join('');
  return `(
      select cast(part.k as binary) as k${of}, max(part.ttl) as ttl from ${PARTS}
      where part.several = 1 and find_in_set(part.i, o_held) group by cast(part.k as binary)${of}) longest`;
};

const HELD = `(l.state <> 'free' and l.ends > a_at)`;

/**
 * Extends each lease that holds all its keys: these keys are then held for at least its ttl from now.
 *
 * a_parts  JSON, an array with an element for each key of each lease: `i`, the number of the lease; `n`, how many keys it
 *          has; `id`; `k`, the key; `ttl` in milliseconds; `slot`, only with permits, if it is known; `several`: 1 if other
 *          elements have the same key
 * o_held   the numbers of the leases that hold all their keys, with commas between them
 *
 * Only a held lease is extended: a late extension must not restore a released or expired lease. A longer life is not
 * shortened: a delayed extension must not undo a later one. A few statements extend all leases, however many.
 */
export const EXTEND: Procedure = {
  name: 'extend',
  parameters: `a_parts ${JSON_TEXT}, a_at bigint, out o_held ${TEXT}`,
  body: `
  declare v_key ${KEY};
  declare v_id ${ID};
  declare v_i int default 0;
  declare v_count int default 0;
  declare misplaced cursor for
    select h.k, h.id from ${PARTS}
      straight_join {holders} h ${BY_PRIMARY} on h.k = cast(part.k as binary) and h.id = part.id and h.kept = 0 and h.ends > a_at
    where h.slot <> part.slot;
  if json_contains_path(a_parts, 'one', '$[*].slot') then
    -- Free each slot that is not the agreed slot of its lease.
    set v_count = (
      select count(*) from ${PARTS}
        straight_join {holders} h ${BY_PRIMARY} on h.k = cast(part.k as binary) and h.id = part.id and h.kept = 0 and h.ends > a_at
      where h.slot <> part.slot);
    open misplaced;
    while v_i < v_count do
      fetch misplaced into v_key, v_id;
      call {give_up}(v_key, v_id, a_at);
      set v_i = v_i + 1;
    end while;
    close misplaced;
  end if;
  set o_held = coalesce((
    select group_concat(held.i) from (
      select part.i from ${PARTS}
        straight_join {locks} l ${BY_PRIMARY} on l.k = cast(part.k as binary) and ${HELD}
          and ((l.mode = 'exclusive' and l.id = part.id and l.state = 'held')
            or (l.mode <> 'exclusive' and exists (
              select 1 from {holders} h ${BY_PRIMARY} where h.k = l.k and h.id = part.id and h.kept = 0 and h.ends > a_at)))
      group by part.i, part.n having count(*) = part.n
    ) held), '');
  if o_held <> '' then
    update ${PARTS} straight_join {locks} l ${BY_PRIMARY} on l.k = cast(part.k as binary)
      set l.ends = greatest(l.ends, a_at + round(1000 * part.ttl))
      where part.several is null and find_in_set(part.i, o_held);
    update ${PARTS} straight_join {holders} h ${BY_PRIMARY} on h.k = cast(part.k as binary) and h.id = part.id and h.kept = 0
      set h.ends = greatest(h.ends, a_at + round(1000 * part.ttl))
      where part.several is null and find_in_set(part.i, o_held);
  end if;
  if o_held <> '' and json_contains_path(a_parts, 'one', '$[*].several') then
    update ${longestOf()} straight_join {locks} l ${BY_PRIMARY} on l.k = longest.k
      set l.ends = greatest(l.ends, a_at + round(1000 * longest.ttl));
    update ${longestOf('id')} straight_join {holders} h ${BY_PRIMARY} on h.k = longest.k and h.id = longest.id and h.kept = 0
      set h.ends = greatest(h.ends, a_at + round(1000 * longest.ttl));
  end if;`,
};
