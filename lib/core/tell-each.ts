import { asError } from './errors.js';
import type { Tell } from './ports.js';

/**
 * Answers each request separately: `tell` gets the result of `answer`, or the error of its rejection. Use it in a store
 * that asks its server for one lease at a time. A store that sends all requests from one turn of the event loop as one
 * message needs fewer round trips.
 */
export function tellEach<Request, Reply>(
  requests: readonly Request[],
  tell: Tell<Reply>,
  answer: (request: Request) => Promise<Reply>,
): void {
  for (const [index, request] of requests.entries()) {
    answer(request).then(
      (reply) => tell(index, reply),
      (error: unknown) => tell(index, asError(error)),
    );
  }
}
