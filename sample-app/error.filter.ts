import {
  type ArgumentsHost,
  Catch,
  HttpException,
  HttpStatus,
  Logger,
  PayloadTooLargeException,
  ServiceUnavailableException,
} from '@nestjs/common';
import { BaseExceptionFilter } from '@nestjs/core';

/** Largest body of a request, in bytes. */
export const BODY_LIMIT = 2 ** 20;

/**
 * Codes of connection errors: those of Node, and classes 08 (connection), 53 (resources) and 57P (shutdown) of
 * PostgreSQL.
 */
const CONNECTION_CODE = /^(ECONN|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|08|53|57P)/;
/** Messages of connection errors that `pg` reports without a code. */
const CONNECTION_MESSAGE =
  /^(Connection terminated|timeout exceeded when trying to connect|Query read timeout)/;

/** Turns errors of the database driver and of the body parser into answers that tell clients what to do. */
@Catch()
export class ErrorFilter extends BaseExceptionFilter {
  private readonly logger = new Logger(ErrorFilter.name);

  override catch(exception: unknown, host: ArgumentsHost): void {
    super.catch(this.answerTo(exception), host);
  }

  private answerTo(exception: unknown): unknown {
    if (exception instanceof HttpException && exception.getStatus() === HttpStatus.PAYLOAD_TOO_LARGE) {
      return new PayloadTooLargeException(
        `The body is larger than ${BODY_LIMIT} bytes; send the tasks in several requests`,
      );
    }
    if (!(exception instanceof Error)) return exception;
    const { code, message } = exception as NodeJS.ErrnoException;
    if ((code !== undefined && CONNECTION_CODE.test(code)) || CONNECTION_MESSAGE.test(message)) {
      this.logger.warn(`database: ${message || code}`);
      return new ServiceUnavailableException('The database cannot be reached at the moment. Try again later');
    }
    return exception;
  }
}
