import type { Type } from '@nestjs/common';

/** Lists all orders of the items. */
export function permutations<T>(items: readonly T[]): T[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((item, index) =>
    permutations(items.toSpliced(index, 1)).map((others) => [item, ...others]),
  );
}

/** Applies decorators to the method `name`. The first one is on top, as in source code. */
export function stack(type: Type, name: string, decorators: readonly MethodDecorator[]): void {
  const descriptor = Object.getOwnPropertyDescriptor(type.prototype, name)!;
  for (const decorator of decorators.toReversed()) decorator(type.prototype as object, name, descriptor);
  Object.defineProperty(type.prototype, name, descriptor);
}

/** A printable name, and a function that makes the decorator for a path. */
export type Named = readonly [name: string, decorator: (path: string) => MethodDecorator];

export const nameOf = (order: readonly Named[]): string => order.map(([name]) => `@${name}`).join(' ');
