import type { MethodCall } from './result-use.js';

/** Follows the use of the object that {@link standIn} stands for. */
export interface Followed {
  /** Makes a call of a method that is not in `members`. */
  readonly call: (call: MethodCall) => unknown;
  /** Called with the value of each other property that is read, if it is an object; returns the value to hand out. */
  readonly property: (value: object) => unknown;
}

/**
 * Makes a wrapper that looks like `object` to its users, but in which `members` replace the members of `object` with
 * the same names.
 *
 * @throws any error of the traps of `object`, if it is a Proxy
 */
export function standIn(
  object: object,
  members: ReadonlyMap<PropertyKey, unknown>,
  { call, property: handOut }: Followed,
): object {
  const self: object = new Proxy(openCopyOf(object) ?? object, {
    get(_target, property) {
      if (members.has(property)) return members.get(property);
      const value: unknown = Reflect.get(object, property, object);
      if (typeof value === 'object' && value !== null && value !== object) return handOut(value);
      if (typeof value !== 'function' || property === 'constructor') return value;
      const method = value as MethodCall['method'];
      // Methods of a class with private fields work only on the object itself.
      return (...args: unknown[]) => call({ name: property, object, self, method, args });
    },
    set: (_target, property, value) => Reflect.set(object, property, value, object),
  });
  return self;
}

/**
 * Copies a frozen object, so that the properties of the copy can change; returns `undefined` for any other object. A
 * Proxy of the frozen object itself could not replace its members: a Proxy must report the real value of a property
 * that can never change.
 */
function openCopyOf(object: object): object | undefined {
  const own = Object.getOwnPropertyDescriptors(object) as Record<PropertyKey, PropertyDescriptor>;
  const descriptors = Reflect.ownKeys(own).map((name) => own[name]!);
  if (descriptors.every(({ configurable, writable }) => configurable || writable !== false)) return undefined;
  for (const descriptor of descriptors) descriptor.configurable = true;
  return Object.create(Object.getPrototypeOf(object) as object | null, own) as object;
}
