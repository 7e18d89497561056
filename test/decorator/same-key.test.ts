import 'reflect-metadata';
import { describe, expect, test } from '@jest/globals';
import { SetMetadata } from '@nestjs/common';
import { defineLocks, WithLock } from '../../lib/index.js';

const { order, other } = defineLocks({ order: { key: 'order' }, other: { key: 'other' } });

/** Applies decorators to the method of a new class as the compiler does: the last one first. */
function decorate(...decorators: readonly unknown[]): void {
  class Orders {
    async settle(): Promise<void> {}
  }
  const descriptor = Object.getOwnPropertyDescriptor(Orders.prototype, 'settle')!;
  for (const decorator of decorators.toReversed())
    (decorator as MethodDecorator)(Orders.prototype, 'settle', descriptor);
}

describe('two decorators of one method', () => {
  const wrapping: MethodDecorator = (_target, _name, descriptor: PropertyDescriptor) => {
    const { value } = descriptor as { value: () => unknown };
    descriptor.value = () => value();
  };

  test.each([
    ['the same key', [WithLock('order'), WithLock('order')]],
    ['a key in common', [WithLock(['a', 'order']), WithLock(['order', 'b'])]],
    ['a key and its declared lock', [WithLock('order'), WithLock.of(order)]],
    ['one declared lock', [WithLock.of(order), WithLock.of(order)]],
    ['a reader of the key below a writer', [WithLock('order'), WithLock('order', { mode: 'shared' })]],
    ['a permit of the key below a writer', [WithLock('order'), WithLock('order', { permits: 2 })]],
    ['a wrapper between the two', [WithLock('order'), wrapping, WithLock('order')]],
    ['`reentrant` on the upper one alone', [WithLock('order', { reentrant: true }), WithLock('order')]],
  ])('throw at the class definition, because each call would wait for itself: %s', (_what, decorators) => {
    expect(() => decorate(...decorators)).toThrow(
      new TypeError(
        '@WithLock of Orders.settle: two decorators of this method lock "order", so each call would wait for itself. Remove ' +
          'one of the two; or give the lower one `reentrant: true`',
      ),
    );
  });

  test.each([
    ['other keys', [WithLock('order'), WithLock.of(other)]],
    ['`reentrant` on the lower one', [WithLock('order'), WithLock('order', { reentrant: true })]],
    ['readers', [WithLock('order', { mode: 'shared' }), WithLock('order', { mode: 'shared' })]],
    ['permits', [WithLock('order', { permits: 2 }), WithLock('order', { permits: 3 })]],
    ['locks of two modules', [WithLock('order'), WithLock('order', { instance: 'billing' })]],
    ['another decorator', [WithLock('order'), SetMetadata('mark', 1)]],
  ])('are accepted when a call does not wait for itself: %s', (_what, decorators) => {
    expect(() => decorate(...decorators)).not.toThrow();
  });

  test('an overriding method of a subclass may lock the key of its parent', () => {
    class Orders {
      @WithLock('order')
      async settle(): Promise<void> {}
    }
    expect(() => {
      class Derived extends Orders {
        @WithLock('order')
        override async settle(): Promise<void> {}
      }
      return Derived;
    }).not.toThrow();
  });
});
