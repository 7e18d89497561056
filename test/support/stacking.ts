import type { Type } from '@nestjs/common';

/** All orders of some things. */
export function permutations<T>(items: readonly T[]): T[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((item, index) =>
    permutations(items.toSpliced(index, 1)).map((others) => [item, ...others]),
  );
}

/** Puts decorators on the method `name` in their order: the first one on top, as if written in source. */
export function stack(type: Type, name: string, decorators: readonly MethodDecorator[]): void {
  const descriptor = Object.getOwnPropertyDescriptor(type.prototype, name)!;
  for (const decorator of decorators.toReversed()) decorator(type.prototype as object, name, descriptor);
  Object.defineProperty(type.prototype, name, descriptor);
}

/** `(path) => decorators` by name, so that an order can be printed. */
export type Named = readonly [name: string, decorator: (path: string) => MethodDecorator];

export const nameOf = (order: readonly Named[]): string => order.map(([name]) => `@${name}`).join(' ');
