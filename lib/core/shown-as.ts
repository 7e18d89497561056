import type { inspect as Inspect, InspectOptions } from 'node:util';

const INSPECT = Symbol.for('nodejs.util.inspect.custom');

/**
 * Decides what `JSON.stringify`, `util.inspect` and loggers show of all objects of a class. Otherwise they would follow
 * the fields of the object, down to the connection and its password: a controller that returns a lock would publish it.
 *
 * @param name - the name that `util.inspect` shows
 * @param describe - returns the properties to show
 */
export function showAs<T extends object>(
  type: { readonly prototype: T },
  name: string,
  describe: (object: T) => object,
): void {
  function toJSON(this: T): object {
    return describe(this);
  }
  function custom(this: T, depth: number, options: InspectOptions, inspect: typeof Inspect): string {
    return depth < 0 ? `[${name}]` : `${name} ${inspect(describe(this), options)}`;
  }
  for (const [key, value] of [['toJSON', toJSON] as const, [INSPECT, custom] as const])
    Object.defineProperty(type.prototype, key, { value, writable: true, configurable: true });
}

/**
 * Hides fields from everything that lists the fields of an object, such as `{ ...object }` and serializers that do not
 * call `toJSON`. The fields of a Nest provider are not `#private`, because a proxy around the provider could not read
 * them.
 */
export function hideFields(object: object, ...names: readonly string[]): void {
  for (const name of names) Object.defineProperty(object, name, { enumerable: false });
}
