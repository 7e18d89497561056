import 'reflect-metadata';

/** A Proxy has the method's name and length, but Reflect metadata belongs to the one object it was defined on. */
export function keepMetadata(from: object, to: object): void {
  for (const key of Reflect.getOwnMetadataKeys(from) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, from), to);
  }
}
