import type { Log } from '../core/log.js';
import type { LockEvent } from '../telemetry/lock-telemetry.events.js';

/**
 * Wraps the listener of the option `onEvent`. The wrapper never throws: it logs the errors that the listener throws or
 * rejects with.
 */
export function eventListener(
  onEvent: ((event: LockEvent) => unknown) | undefined,
  log: Log,
): ((event: LockEvent) => void) | undefined {
  if (!onEvent) return undefined;
  return (event) => {
    const failed = (error: unknown): void =>
      log.error(`onEvent failed for '${event.type}': ${String(error)}`);
    try {
      const result = onEvent(event);
      if (result instanceof Promise) result.catch(failed);
    } catch (error) {
      failed(error);
    }
  };
}
