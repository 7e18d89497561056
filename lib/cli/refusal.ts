import { type LockHeldError, type LockUnavailableError, WAIT_AT_START } from '../core/errors.js';
import { printable, quoted } from '../core/printable.js';
import { duration } from './format.js';

/** The reasons of the library for not granting a lock. */
export type Refusal = LockHeldError | LockUnavailableError;

/** Says who has the lock. The message of the error is not for a command line: it names options of the library. */
export function whyHeld({ keys, owner, holders, retryAfter }: LockHeldError): string {
  const name = printable(owner);
  if (holders.length === 0) return `${quoted(keys)} is reserved for ${name}, who came earlier and waits`;
  if (!Number.isFinite(retryAfter))
    return `${quoted(keys)} is held by ${name}, without an expiry; nestjs-redlock release ends it`;
  const others = holders.length > 1 ? ` and ${holders.length - 1} more` : '';
  return `${quoted(keys)} is held by ${name}${others} (${duration(retryAfter)} left unless renewed)`;
}

/** Says why no quorum of nodes answered, with the options of the command line as remedy. */
export function whyUnavailable({ message }: LockUnavailableError): string {
  return message
    .replace(WAIT_AT_START, ' A longer --wait waits until they vote.')
    .replace(' (retry.timeout)', '');
}
