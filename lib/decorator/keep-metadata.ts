import 'reflect-metadata';

/**
 * Copies the Reflect metadata of a method to its Proxy: metadata belongs to one object, and a Proxy does not inherit
 * it.
 */
export function keepMetadata(from: object, to: object): void {
  for (const key of Reflect.getOwnMetadataKeys(from) as unknown[]) {
    Reflect.defineMetadata(key, Reflect.getOwnMetadata(key, from), to);
  }
}
