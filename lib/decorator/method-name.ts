import { isStandardContext } from './bare-use.js';

/**
 * Returns the name of the class and of the decorated method, such as `Orders.settle`.
 *
 * @param decorator - the name of the decorator, such as `@WithLock`
 * @throws TypeError unless the decorated member is a method of an instance, and the compiler applies decorators as
 * NestJS needs it
 */
export function methodName(
  decorator: string,
  target: object,
  name: string | symbol,
  descriptor: PropertyDescriptor | undefined,
): string {
  if (isStandardContext(name)) {
    throw new TypeError(
      `${decorator} of ${String(name.name)} was compiled as a standard decorator, and the decorators of NestJS are those of ` +
        '`experimentalDecorators`. Set `experimentalDecorators` and `emitDecoratorMetadata` in the `compilerOptions` of ' +
        'tsconfig.json; for SWC, `legacyDecorator` and `decoratorMetadata` in `jsc.transform`',
    );
  }
  if (typeof descriptor?.value !== 'function' || typeof target === 'function') {
    const what = name === undefined ? 'a class' : `\`${String(name)}\``;
    const remedy = remedyFor(decorator, target, name, descriptor);
    throw new TypeError(
      `${decorator} works only on instance methods, and ${what} is not an instance method. ${remedy}`,
    );
  }
  return `${target.constructor.name}.${String(name)}`;
}

function remedyFor(
  decorator: string,
  target: object,
  name: string | symbol | undefined,
  descriptor: PropertyDescriptor | undefined,
): string {
  if (name === undefined) return `Put \`${decorator}\` on each method that needs it`;
  if (typeof target === 'function') return 'Remove `static`';
  // A property has no descriptor here: each object creates it later, after the decorator has run.
  if (descriptor === undefined)
    return `Write \`async ${String(name)}() { ... }\` in place of \`${String(name)} = async () => { ... }\``;
  return `Write \`async ${String(name)}() { ... }\``;
}
