import { Injectable } from '@nestjs/common';

/** Steps of an instance, which is the subject of each comment below. */
export type JournalEntry =
  /** Asks for an exclusive lock for the first time, and continues to ask until it gets the lock. */
  | { readonly kind: 'asking' }
  /**
   * May dispatch. `asked` is the number of milliseconds since the request. Without a `ttl` Redis keeps the lock for
   * ever.
   */
  | {
      readonly kind: 'acquired';
      readonly asked: number;
      readonly locked?: boolean;
      readonly token?: number;
      readonly slot?: number;
      readonly ttl?: number;
    }
  /** Was refused: another instance holds the lock. */
  | { readonly kind: 'skipped' }
  /** Did not get the lock: too few nodes voted. */
  | { readonly kind: 'unavailable'; readonly message: string }
  | { readonly kind: 'renewed' }
  /** Has finished its work, and now releases the lock if the lock is still held. */
  | { readonly kind: 'released' }
  /** Failed to renew its lock; there is still time for another renewal. */
  | { readonly kind: 'unconfirmed'; readonly message: string }
  /** Has learned that its lock is lost, and has stopped its work. */
  | { readonly kind: 'lost'; readonly message: string }
  | { readonly kind: 'read'; readonly tasks: number }
  /** Has passed all checks, and is about to mark the tasks that it has read as enqueued. */
  | { readonly kind: 'writing' }
  /** Was refused a write by the database, because a later holder has read or written. */
  | { readonly kind: 'refused'; readonly message: string }
  /** Has put these jobs, each a `task#dispatch`, into the queue. */
  | { readonly kind: 'pushed'; readonly jobs: readonly string[] }
  | { readonly kind: 'failed'; readonly message: string };

export type JournalEvent = JournalEntry & { readonly at: number };

/** Sends the steps of this process to the lab, which started the process. */
@Injectable()
export class Journal {
  tell(entry: JournalEntry): void {
    if (process.connected) process.send?.({ at: Date.now(), ...entry });
  }
}
