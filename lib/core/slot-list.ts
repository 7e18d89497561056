/** The slot (the position in the list) of a member that is in no list. */
export const NO_SLOT = -1;

/**
 * Unordered collection with O(1) add and remove: the last member moves to the slot of a removed member. During an
 * iteration, only members that the iteration has not reached may be removed.
 *
 * A Set would keep garbage: V8 replaces the table of a Set that changes all the time, and each old table refers to the
 * next. When one table is in the old generation, the collection of young garbage cannot free the former entries of all
 * later tables.
 *
 * With Sets in place of these lists, each lock left 1.4 kB of garbage, and client CPU was 9 us instead of 6 us.
 * Measured in a loop of acquire and release, 64 in flight on one node, with `--trace-gc`.
 */
export class SlotList<Slot extends string, Member extends Record<Slot, number>> implements Iterable<Member> {
  readonly #members: Member[] = [];

  /** @param slot - the property in which each member keeps its slot; its first value must be {@link NO_SLOT} */
  constructor(private readonly slot: Slot) {}

  get size(): number {
    return this.#members.length;
  }

  has(member: Member): boolean {
    return member[this.slot] !== NO_SLOT;
  }

  /** @param member - must not be in another list that uses the same property */
  add(member: Member): void {
    this.#put(member, this.#members.length);
  }

  delete(member: Member): void {
    const last = this.#members.at(-1);
    if (!last || !this.has(member)) return;
    this.#put(last, member[this.slot]);
    this.#members.pop();
    (member as Record<Slot, number>)[this.slot] = NO_SLOT;
  }

  #put(member: Member, slot: number): void {
    this.#members[slot] = member;
    (member as Record<Slot, number>)[this.slot] = slot;
  }

  [Symbol.iterator](): IterableIterator<Member> {
    return this.#members.values();
  }
}
