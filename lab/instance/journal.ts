import { Injectable } from '@nestjs/common';

/** Steps of an instance. */
export type JournalEntry =
  /** Asks for an exclusive lock for the first time, and goes on until its turn comes. */
  | { readonly kind: 'asking' }
  /** May dispatch. `asked` is how many milliseconds ago it asked; without a `ttl` Redis keeps the lock for ever. */
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
  /** Has finished its work, and now releases the lock if it still holds it. */
  | { readonly kind: 'released' }
  /** A renewal has failed; there is still time for another one. */
  | { readonly kind: 'unconfirmed'; readonly message: string }
  /** Has found out that its lock is gone, and stopped. */
  | { readonly kind: 'lost'; readonly message: string }
  | { readonly kind: 'read'; readonly tasks: number }
  /** Is about to mark the tasks that it has read: all checks are done. */
  | { readonly kind: 'writing' }
  /** The database has refused its write, because a later holder has read or written. */
  | { readonly kind: 'refused'; readonly message: string }
  /** Each `task#dispatch` that it has put into the queue. */
  | { readonly kind: 'pushed'; readonly jobs: readonly string[] }
  | { readonly kind: 'failed'; readonly message: string };

export type JournalEvent = JournalEntry & { readonly at: number };

/** Sends what happens in this process to the lab, which started it. */
@Injectable()
export class Journal {
  tell(entry: JournalEntry): void {
    if (process.connected) process.send?.({ at: Date.now(), ...entry });
  }
}
