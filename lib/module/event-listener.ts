import type { Logger } from '@nestjs/common';
import type { LockEvent } from '../telemetry/lock-telemetry.events.js';

/**
 * Wraps the listener of the option `onEvent`. The wrapper never throws: it logs the errors that the listener throws or
 * rejects with.
 */
export function eventListener(
  onEvent: ((event: LockEvent) => unknown) | undefined,
  logger: Logger,
): ((event: LockEvent) => void) | undefined {
  if (!onEvent) return undefined;
  return (event) => {
    const failed = (error: unknown): void =>
      logger.error(`onEvent failed for '${event.type}': ${String(error)}`);
    try {
      const result = onEvent(event);
      if (result instanceof Promise) result.catch(failed);
    } catch (error) {
      failed(error);
    }
  };
}
