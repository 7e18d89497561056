import { Logger } from '@nestjs/common';
import type { LeaderTask } from '../../service/leader/campaign.js';
import type { Leaders } from '../../service/leader/leaders.js';
import { nobodyLeads } from '../../service/leader/leadership.js';
import { quoted } from '../../core/printable.js';
import { leadersOf } from './leader.decorator.js';
import { type NeededLeader, neededLeadersOf } from './only-leader.decorator.js';

/** Finds the methods with `@Leader` or `@OnlyLeader` whose locks one module instance keeps, in one application. */
export class LeaderCheck {
  /** The checked objects: an object can be provided more than once. */
  readonly #seen = new Set<object>();
  readonly #needed: NeededLeader[] = [];
  /** The leaders that objects declare which Nest has made since the last {@link tellUnmanaged}. */
  readonly #made = new Map<string, string>();

  constructor(
    private readonly instance: string | undefined,
    private readonly leaders: Leaders,
  ) {}

  /**
   * @param isStatic - `true` if Nest creates the object once, at the start
   * @throws Error when two methods have `@Leader` with one name, or when there can be several objects of a class with
   * `@Leader`
   */
  add(object: object, isStatic: boolean): void {
    if (this.#seen.has(object)) return;
    this.#seen.add(object);
    for (const { name, method, instance, ttl, renew, maxBlocked } of leadersOf(object)) {
      if (instance !== this.instance) continue;
      this.#made.delete(name);
      const fullName = `${object.constructor.name}.${String(method)}`;
      if (!isStatic) {
        throw new Error(
          `@Leader(${quoted([name])}) of ${fullName}: the class is request-scoped or transient, so there is no single object ` +
            'that could lead. Put `@Leader` on a provider of the default scope.',
        );
      }
      const lead = (object as Record<string | symbol, LeaderTask['lead']>)[method]!;
      this.leaders.add({
        name,
        method: fullName,
        ttl,
        renew,
        maxBlocked,
        lead: (term) => lead.call(object, term),
      });
    }
    this.#needed.push(...neededLeadersOf(object).filter(({ instance }) => instance === this.instance));
  }

  /** Records an object that Nest has made: it is a provider of a module, or Nest does not list it. */
  made(object: object): void {
    for (const { name, method, instance } of leadersOf(object))
      if (instance === this.instance) this.#made.set(name, `${object.constructor.name}.${String(method)}`);
  }

  /** Warns of the objects that Nest has made and does not list, so that nobody campaigns for them. */
  tellUnmanaged(): void {
    for (const [name, method] of this.#made) {
      if (this.leaders.of(name)) continue;
      new Logger('Leader').warn(
        `@Leader(${quoted([name])}) of ${method} never leads: its object is not in the \`providers\` of a module. It was ` +
          'made with `moduleRef.create()`, or for a decorator such as `@UseGuards`. Put the class into the `providers` of ' +
          'one module.',
      );
    }
    this.#made.clear();
  }

  /** @throws RedlockError with the code `NO_LEADER` when no method has `@Leader` with the name of an `@OnlyLeader` */
  finish(): void {
    for (const { name, method } of this.#needed.splice(0))
      if (!this.leaders.of(name))
        throw nobodyLeads(`@OnlyLeader(${quoted([name])}) of ${method}`, this.leaders);
  }
}
