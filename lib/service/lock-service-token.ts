import { LockService } from './lock.service.js';

/**
 * The injection token of a module's `LockService`. The error of Nest for an unresolved token contains its description,
 * so the description contains the remedy.
 */
export function lockServiceToken(name: string | undefined): typeof LockService | symbol {
  if (name === undefined) return LockService;
  return Symbol.for(
    `@InjectLockService('${name}') needs RedlockModule.forRoot({ nodes, name: '${name}' }) in the imports`,
  );
}
