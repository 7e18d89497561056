/**
 * The error of a command on several keys of a Cluster's hash slot that moves to another master. A server runs such a
 * command only if it has all the keys. A command on one key runs where the key is.
 */
export class MovingSlotError extends Error {
  constructor(cause: Error) {
    super(
      'TRYAGAIN the Cluster moves the hash slot of the key to another master, and only a part of the Redis keys of the lock ' +
        'is on one of the two; an exclusive lock of one key works meanwhile, for others wait until the move has ended, or ' +
        'end it with `redis-cli --cluster fix`',
      { cause },
    );
  }
}

/** `true` for the answer TRYAGAIN, also in the error with which ioredis gives up. */
export function isSlotMoving({ message }: Error): boolean {
  return /\bTRYAGAIN\b/.test(message);
}
