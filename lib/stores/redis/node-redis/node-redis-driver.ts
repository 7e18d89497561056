import { AdaptedDriver } from '../connection/adapted-driver.js';

/** An error of the server begins with its code, such as `NOSCRIPT` or `ERR`; an error of the client does not. */
const CODE = /^[A-Z]{2,}[A-Z_]* /;

/** A passed-in client of node-redis, with the commands, answers, events and error names of ioredis. */
export abstract class NodeRedisDriver extends AdaptedDriver {
  protected abstract send(args: readonly string[], key: string | undefined): Promise<unknown>;

  protected ask(args: readonly string[], key: string | undefined): Promise<unknown> {
    return likeIoredis(this.send(args, key));
  }
}

/** Gives the errors of a server the error name of ioredis, including errors inside an answer. */
export function likeIoredis<T>(answer: Promise<T>): Promise<T> {
  return answer.then(
    (reply) => {
      if (Array.isArray(reply)) for (const item of reply) named(item);
      return reply;
    },
    (error: unknown) => {
      throw named(error);
    },
  );
}

function named(value: unknown): unknown {
  if (value instanceof Error && CODE.test(value.message)) value.name = 'ReplyError';
  return value;
}
