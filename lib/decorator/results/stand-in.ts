/**
 * Returns a wrapper of `object` that looks the same to its users, with these members in place of its own.
 *
 * @throws any error of the traps of `object`, if it is a Proxy
 */
export function standIn(object: object, members: ReadonlyMap<PropertyKey, unknown>): object {
  return new Proxy(openCopyOf(object) ?? object, {
    get(_target, property) {
      if (members.has(property)) return members.get(property);
      const value: unknown = Reflect.get(object, property, object);
      // Methods of classes with private fields work on the object itself only.
      return typeof value === 'function' && property !== 'constructor'
        ? (value.bind(object) as unknown)
        : value;
    },
    set: (_target, property, value) => Reflect.set(object, property, value, object),
  });
}

/**
 * A Proxy must tell the truth about what can never change, so that it could not have another iterator than a frozen
 * object. It need not about a copy that is not frozen.
 */
function openCopyOf(object: object): object | undefined {
  const own = Object.getOwnPropertyDescriptors(object) as Record<PropertyKey, PropertyDescriptor>;
  const descriptors = Reflect.ownKeys(own).map((name) => own[name]!);
  if (descriptors.every(({ configurable, writable }) => configurable || writable !== false)) return undefined;
  for (const descriptor of descriptors) descriptor.configurable = true;
  return Object.create(Object.getPrototypeOf(object) as object | null, own) as object;
}
