import { withTimeout } from '../../core/with-timeout.js';
import type { DatabaseClient } from './database-client.js';

/**
 * Milliseconds within which a connection must be open. A package limits only a part of the time: neither a function for
 * the password nor the first statement, which a proxy without a server may never answer.
 */
const CONNECTED_WITHIN_MS = 10_000;

/** Connects a client. Rejects when that takes too long; the caller then ends the client. */
export function connectInTime(client: DatabaseClient): Promise<void> {
  return withTimeout(client.connect(), CONNECTED_WITHIN_MS);
}
