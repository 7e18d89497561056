import type { LockMode } from '../../lib/core/lock-mode.js';

// This model has the rules of a node for keys that several clients can hold, without waiters. Each message changes the
// holders with their ends, slots and tokens. `modes.test.ts` shows that the stores give the same answers.
//
// Times are those of the node's clock, in the unit of tokens. No message is late, and no token is far ahead of the
// clock: `record.ts` has the rules for late messages (deadline), for lost data (guard) and for tokens far ahead
// (marker).

const { max } = Math;

/** The fields of a lease that the rules use. */
export interface Claimant {
  readonly id: string;
  readonly keys: readonly string[];
  readonly mode: LockMode;
  /** Number of permits; 0 in other modes. */
  readonly permits: number;
}

export interface Wanted {
  readonly ttl: number;
  readonly proposal: number;
  readonly wish: { readonly slots: readonly number[]; readonly exactly: boolean } | undefined;
  /** True if a held lock heals; `proposal` is then its token. */
  readonly heals: boolean;
}

export interface Held {
  readonly token: number;
  readonly end: number;
  /** Set only for permits. */
  readonly slot: number | undefined;
  /** True after a release with `minHold`: the holder still blocks other clients until its end. */
  readonly kept: boolean;
}

/** The rules; only {@link RIGHT_MODES} is right. */
export interface ModeRules {
  /** Time for which the node keeps the tokens of a key after its last holder has ended. */
  readonly linger: number;
  /** The node grants no reader beside an exclusive holder, and no permit beside readers. */
  readonly excludes: boolean;
  /** A reader that joins other readers gets their token. */
  readonly joinsByToken: boolean;
  /** A reader that heals beside other readers keeps its token if that is larger than theirs. */
  readonly healsByToken: boolean;
  /** Each holder has an end of its own. */
  readonly ownEnds: boolean;
  /** The next token of a slot only has to be larger than the last token of the same slot. */
  readonly rows: boolean;
  /** A grant of a free key begins a phase. The tokens of a phase are larger than the tokens of all earlier phases. */
  readonly floor: boolean;
  /** A lease gives up its slot when it asks for another slot and accepts no other than that one. */
  readonly givesUp: boolean;
  /** An extension that names another slot than the lease has on the node does not extend the lease. */
  readonly knowsSlot: boolean;
  /** The node refuses a raise to a token that is smaller than the lease's token on the node. */
  readonly refusesLowerRaise: boolean;
  /** A release removes only the lease that it names, and no other holder. */
  readonly releasesOwn: boolean;
}

export const RIGHT_MODES: Omit<ModeRules, 'linger'> = {
  excludes: true,
  joinsByToken: true,
  healsByToken: true,
  ownEnds: true,
  rows: true,
  floor: true,
  givesUp: true,
  knowsSlot: true,
  refusesLowerRaise: true,
  releasesOwn: true,
};

interface Key {
  mode: LockMode;
  /** The largest granted token. */
  token: number;
  /** The largest token before the present phase. */
  floor: number;
  permits: number;
  /** The time at which the last of the holders ends. */
  until: number;
  readonly rows: Map<number, number>;
  readonly holders: Map<string, Held>;
}

export type Granted = { readonly token: number; readonly slots: readonly (number | undefined)[] };

/** All keys of one node. */
export class ManyHolders {
  readonly #keys = new Map<string, Key>();

  constructor(private readonly rules: ModeRules) {}

  copy(): ManyHolders {
    const copy = new ManyHolders(this.rules);
    for (const [name, key] of this.#keys)
      copy.#keys.set(name, { ...key, rows: new Map(key.rows), holders: new Map(key.holders) });
    return copy;
  }

  /** Returns the holders of the key by their ids. */
  holders(name: string, now: number): ReadonlyMap<string, Held> {
    const holders = [...(this.#keys.get(name)?.holders ?? [])];
    return new Map(holders.filter(([, { end }]) => now < end));
  }

  mode(name: string): { readonly mode: LockMode; readonly permits: number } {
    const { mode, permits } = this.#key(name, 0);
    return { mode, permits };
  }

  /**
   * Sets a holder's end to the end that the node shows. The shown end may be wrong by as much time as the answer took.
   */
  correctEnd(name: string, id: string, end: number): void {
    const key = this.#keys.get(name);
    const held = key?.holders.get(id);
    if (key && held) key.holders.set(id, { ...held, end });
  }

  /** Returns the ends of all holders. */
  ends(): number[] {
    return [...this.#keys.values()].flatMap(({ holders }) => [...holders.values()].map(({ end }) => end));
  }

  acquire(claim: Claimant, now: number, { ttl, proposal, wish, heals }: Wanted): Granted | undefined {
    const { id, keys, mode, permits } = claim;
    let mine = keys.map((name) => this.#mine(name, id, now));
    const moves = wish?.exactly && mine.some((held, index) => held && held.slot !== wish.slots[index]);
    if (moves && this.rules.givesUp) {
      for (const name of keys) this.#end(name, id, now);
      mine = keys.map(() => undefined);
    }
    if (mine.some((held) => held !== undefined)) {
      if (mine.includes(undefined)) return undefined;
      return { token: mine[0]!.token, slots: mine.map((held) => held!.slot) };
    }
    const slots: (number | undefined)[] = [];
    let joins = true;
    let least = 0;
    for (const [index, name] of keys.entries()) {
      const key = this.#key(name, now);
      const live = this.holders(name, now);
      const isTogether = live.size > 0 && key.mode === mode && mode !== 'exclusive';
      if (live.size > 0 && !isTogether && (this.rules.excludes || mode === 'exclusive')) return undefined;
      const joining = isTogether && mode === 'shared' && this.rules.joinsByToken;
      joins &&= joining;
      let last = key.token;
      if (mode === 'permits') {
        const taken = new Set([...live.values()].map(({ slot }) => slot));
        const slot = freeSlot(taken, permits, wish, index);
        if (slot === undefined) return undefined;
        slots.push(slot);
        if (isTogether && this.rules.rows) last = key.rows.get(slot) ?? (this.rules.floor ? key.floor : 0);
      } else slots.push(undefined);
      least = max(least, joining ? last : last + 1);
    }
    const isOwn = heals && (!joins || this.rules.healsByToken);
    const own = isOwn ? proposal : joins ? 0 : max(Math.floor(now), proposal);
    const token = max(least, own);
    for (const [index, name] of keys.entries()) this.#grant(name, claim, now, ttl, token, slots[index]);
    return { token, slots };
  }

  extend(
    { id, keys, mode }: Claimant,
    now: number,
    ttl: number,
    slots: readonly number[] | undefined,
  ): boolean {
    if (slots && mode === 'permits' && this.rules.knowsSlot) {
      for (const [index, name] of keys.entries()) {
        const held = this.#mine(name, id, now);
        if (held && held.slot !== slots[index]) this.#end(name, id, now);
      }
    }
    if (keys.some((name) => !this.#mine(name, id, now))) return false;
    for (const name of keys) {
      const key = this.#key(name, now);
      for (const [holder, held] of key.holders) {
        if (held.kept || (this.rules.ownEnds && holder !== id)) continue;
        key.holders.set(holder, { ...held, end: max(held.end, now + ttl) });
      }
      key.until = max(key.until, now + ttl);
    }
    return true;
  }

  raise({ id, keys }: Claimant, now: number, token: number, slots: readonly number[] | undefined): boolean {
    for (const [index, name] of keys.entries()) {
      const held = this.#mine(name, id, now);
      if (!held || (this.rules.refusesLowerRaise && held.token > token)) return false;
      if (slots && held.slot !== undefined && held.slot !== slots[index]) return false;
    }
    for (const name of keys) {
      const key = this.#key(name, now);
      const held = this.#mine(name, id, now)!;
      const raised = max(held.token, token);
      key.holders.set(id, { ...held, token: raised });
      if (held.slot !== undefined) key.rows.set(held.slot, raised);
      key.token = max(key.token, token);
    }
    return true;
  }

  release({ id, keys }: Claimant, now: number, keep: number): void {
    for (const name of keys) {
      const held = this.#mine(name, id, now);
      if (!held) continue;
      if (keep > 0) {
        const key = this.#key(name, now);
        key.holders.set(id, { ...held, end: now + keep, kept: true });
        key.until = max(...[...key.holders.values()].map(({ end }) => end));
      } else if (this.rules.releasesOwn) this.#end(name, id, now);
      else for (const holder of this.holders(name, now).keys()) this.#end(name, holder, now);
    }
  }

  forceRelease(name: string, ids: readonly string[], now: number): string[] {
    const ended = ids.filter((id) => this.holders(name, now).has(id));
    for (const id of ended) this.#end(name, id, now);
    return ended;
  }

  #grant(
    name: string,
    { id, mode, permits }: Claimant,
    now: number,
    ttl: number,
    token: number,
    slot: number | undefined,
  ): void {
    const live = this.holders(name, now);
    const key = this.#key(name, now);
    if (live.size === 0) {
      key.floor = key.token;
      key.permits = 0;
      key.rows.clear();
    }
    for (const holder of key.holders.keys()) if (!live.has(holder)) key.holders.delete(holder);
    key.holders.set(id, { token, end: now + ttl, slot, kept: false });
    key.mode = mode;
    key.token = max(key.token, token);
    key.permits = max(key.permits, permits);
    key.until = max(live.size === 0 ? 0 : key.until, now + ttl);
    if (slot !== undefined) key.rows.set(slot, token);
    this.#keys.set(name, key);
  }

  /** Returns the state of a key, or an empty state when the last holder ended longer than the linger ago. */
  #key(name: string, now: number): Key {
    const key = this.#keys.get(name);
    if (key && now < key.until + this.rules.linger) return key;
    return {
      mode: 'exclusive',
      token: 0,
      floor: 0,
      permits: 0,
      until: 0,
      rows: new Map(),
      holders: new Map(),
    };
  }

  #mine(name: string, id: string, now: number): Held | undefined {
    const held = this.holders(name, now).get(id);
    return held?.kept ? undefined : held;
  }

  #end(name: string, id: string, now: number): void {
    const key = this.#keys.get(name);
    if (!key?.holders.delete(id)) return;
    key.until = max(now, ...[...this.holders(name, now).values()].map(({ end }) => end));
  }
}

function freeSlot(
  taken: ReadonlySet<number | undefined>,
  permits: number,
  wish: Wanted['wish'],
  index: number,
): number | undefined {
  const from = wish?.slots[index] ?? 0;
  const all = Array.from({ length: permits }, (_, step) => (from + step) % permits);
  return (wish?.exactly ? [from] : all).find((slot) => !taken.has(slot));
}
