import { type ArgumentsHost, Catch, type ExceptionFilter, Logger } from '@nestjs/common';
import { type Observable, throwError } from 'rxjs';
import { LockHeldError, RedlockError, type RedlockErrorCode } from '../core/errors.js';

/** Response to a client in place of a {@link RedlockError}. It names no process, no Redis and no key. */
export interface LockProblem {
  /** The status for an HTTP response; also present for a client that does not use HTTP. */
  readonly statusCode: number;
  readonly message: string;
  readonly code: RedlockErrorCode;
  /** Whole seconds after which a retry makes sense; absent when the number is unknown. */
  readonly retryAfter?: number;
}

const LATER = 'try again later';

const ANSWERS: Readonly<Record<RedlockErrorCode, readonly [statusCode: number, message: string]>> = {
  LOCK_HELD: [409, `Somebody else is working on this; ${LATER}`],
  LOCK_UNAVAILABLE: [503, `This cannot be locked at the moment; ${LATER}`],
  LOCK_LOST: [409, 'The lock on this was lost before the work was done; check the result'],
  MAX_HOLD_REACHED: [409, 'The work took too long; check the result'],
  TOKEN_STALE: [409, 'Somebody else has changed this in the meantime'],
  LOCK_UPGRADE: [500, 'Internal server error'],
  LOCK_NOT_ATTACHED: [409, 'The lock on this has ended before the work was taken over; check the result'],
  LOCK_NOT_DETACHED: [500, 'Internal server error'],
  LOCK_NOT_DECLARED: [500, 'Internal server error'],
  LOCK_NOT_INJECTED: [500, 'Internal server error'],
  NO_LEADER: [500, 'Internal server error'],
};

/** Seconds after which a node may be available again: clients of this package reconnect once a second. */
const UNAVAILABLE_FOR_S = 1;

/**
 * Answers requests that ended in a {@link RedlockError}: `LockLostError` and `StaleTokenError` with 409,
 * `LockHeldError` with 409 and a `Retry-After`, `LockUnavailableError` with 503 and a `Retry-After`. These are the
 * responses with Express and Fastify. GraphQL gets an error with `extensions.code`; microservices and gateways get
 * errors of their own protocols.
 *
 * The response has no names of processes, servers or keys. Override {@link problem} for other contents. All errors
 * except `LockHeldError` are logged with all details, for operators.
 *
 * @example
 * ```ts
 * import { Module } from '@nestjs/common';
 * import { APP_FILTER } from '@nestjs/core';
 * import { LockExceptionFilter } from 'nestjs-redlock';
 *
 * @Module({ providers: [{ provide: APP_FILTER, useClass: LockExceptionFilter }] })
 * class AppModule {}
 * ```
 */
@Catch(RedlockError)
export class LockExceptionFilter implements ExceptionFilter<RedlockError> {
  readonly #logger = new Logger(LockExceptionFilter.name);

  /** @throws for GraphQL, an error with the fields of the response; for an unknown kind of request, the error itself */
  catch(error: RedlockError, host: ArgumentsHost): Observable<never> | void {
    const problem = this.problem(error);
    // A held lock is normal operation, so it is not logged.
    if (error.code !== 'LOCK_HELD') this.#logger.warn(error.message);
    const { message, ...details } = problem;
    switch (host.getType<string>()) {
      case 'http':
        return respond(host.switchToHttp().getResponse(), problem);
      case 'rpc':
        return throwError(() => ({ status: 'error', ...problem }));
      case 'ws':
        return emit(host.switchToWs().getClient(), { status: 'error', ...problem });
      case 'graphql':
        throw Object.assign(new Error(message), { extensions: details });
      default:
        throw error;
    }
  }

  /** Returns the client's view of the error. */
  protected problem(error: RedlockError): LockProblem {
    const { code } = error;
    const [statusCode, message] = ANSWERS[code];
    const retryAfter = secondsUntilFree(error);
    return { statusCode, message, code, ...(retryAfter === undefined ? {} : { retryAfter }) };
  }
}

/**
 * Returns the seconds until the lock may be free; `undefined` for a key without an expiry, which does not become free
 * by itself.
 */
function secondsUntilFree(error: RedlockError): number | undefined {
  if (error.code === 'LOCK_UNAVAILABLE') return UNAVAILABLE_FOR_S;
  if (!(error instanceof LockHeldError) || !Number.isFinite(error.retryAfter)) return undefined;
  return Math.max(1, Math.ceil(error.retryAfter / 1_000));
}

/** Common methods of the responses of Express and Fastify. */
interface Response {
  status(code: number): this;
  header(name: string, value: string): this;
  send(body: object): unknown;
}

interface SentResponse {
  readonly headersSent: boolean;
  end(): unknown;
}

function respond(
  response: Response & SentResponse & { readonly raw?: SentResponse },
  problem: LockProblem,
): void {
  // The response of Fastify contains the response of Node.
  const sent = response.raw ?? response;
  if (sent.headersSent) {
    // A part of the response has been sent already, for example of a stream. The response can then only be ended.
    sent.end();
    return;
  }
  const { statusCode, retryAfter } = problem;
  if (retryAfter !== undefined) response.header('Retry-After', String(retryAfter));
  response.status(statusCode).send(problem);
}

/** A client of Socket.IO, or a WebSocket. */
interface SocketClient {
  emit(event: string, data: object): unknown;
  send(text: string): unknown;
  /** Only a WebSocket has this property. */
  readonly readyState?: number;
}

/** Sends the error in the form in which Nest sends exceptions. */
function emit(client: SocketClient, data: object): void {
  if (client.readyState === undefined) client.emit('exception', data);
  else client.send(JSON.stringify({ event: 'exception', data }));
}
