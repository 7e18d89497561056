import { Inject } from '@nestjs/common';
import { refuseBareUse } from './bare-use.js';
import { badOption } from '../core/checks.js';
import { lockServiceToken } from '../service/lock-service-token.js';

/**
 * Injects the `LockService` of the `RedlockModule` with this `name`. The service of the module without a name is
 * injected by its type.
 *
 * @throws TypeError when `name` is not a string, or empty
 * @example
 * ```ts
 * import { InjectLockService, LockService } from 'nestjs-redlock';
 *
 * class Billing {
 *   constructor(@InjectLockService('billing') private readonly locks: LockService) {}
 * }
 * ```
 */
export function InjectLockService(name: string): PropertyDecorator & ParameterDecorator {
  refuseBareUse('@InjectLockService', arguments, "@InjectLockService('billing')");
  if (typeof name !== 'string' || name === '') throw badOption('name', 'the `name` of a RedlockModule', name);
  return Inject(lockServiceToken(name));
}
