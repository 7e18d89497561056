import { withTimeout } from '../../core/with-timeout.js';
import type { DatabaseClient } from './database-client.js';

/**
 * Milliseconds within which a connection must be open. A package limits only a part of the time: neither a function for
 * the password nor the first statement, which a proxy without a server may never answer.
 */
const CONNECTED_WITHIN_MS = 10_000;

/**
 * Milliseconds that a statement which prepares a new connection may take. There is no limit for all of them: a slow server
 * answers each statement that creates a table, and may need many times as long for all.
 */
const PREPARED_WITHIN_MS = 5_000;

/** Connects a client. Rejects when that takes too long; the caller then ends the client. */
export function connectInTime(client: DatabaseClient): Promise<void> {
  return withTimeout(client.connect(), CONNECTED_WITHIN_MS);
}

/** Waits for the answer to one statement that prepares a new connection. */
export function preparedInTime<T>(answer: Promise<T>): Promise<T> {
  return withTimeout(answer, PREPARED_WITHIN_MS);
}
