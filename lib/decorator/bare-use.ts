/**
 * Refuses a decorator without parentheses, which gets the class and the name of the method as its own arguments. The
 * compiler of TypeScript refuses it too. In JavaScript its result would be ignored, and the method would not be locked.
 *
 * @param decorator - the name of the decorator, such as `@WithLock`
 * @param args - the arguments of the decorator: mostly a key or a name, and options
 * @param written - the decorator as it should be written
 * @throws TypeError
 */
export function refuseBareUse(decorator: string, args: ArrayLike<unknown>, written: string): void {
  const place = decoratedBy(args);
  if (place === undefined) return;
  throw new TypeError(
    `${decorator} of ${place} has no parentheses, so it does nothing. Write \`${written}\``,
  );
}

/** Names the decorated class and method; `undefined` for the arguments of a decorator with parentheses. */
function decoratedBy({ 0: target, 1: name }: ArrayLike<unknown>): string | undefined {
  if (isStandardContext(name)) return String(name.name);
  const type = typeof target === 'function' ? target : isPrototype(target) ? target.constructor : undefined;
  if (!type) return undefined;
  if (typeof name === 'string' || typeof name === 'symbol') return `${type.name}.${String(name)}`;
  return name === undefined && isClass(type) ? type.name : undefined;
}

function isPrototype(value: unknown): value is { readonly constructor: (...args: never[]) => unknown } {
  return (
    typeof value === 'object' &&
    value !== null &&
    Object.hasOwn(value, 'constructor') &&
    typeof value.constructor === 'function'
  );
}

/** The prototype of a function can be replaced, that of a class cannot. */
function isClass(type: object): boolean {
  return Object.getOwnPropertyDescriptor(type, 'prototype')?.writable === false;
}

/** `true` for the second argument of a standard decorator, which has neither a prototype nor a descriptor. */
export function isStandardContext(value: unknown): value is { readonly name: string | symbol | undefined } {
  return typeof value === 'object' && value !== null && 'kind' in value && 'name' in value;
}
