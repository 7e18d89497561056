import { Injectable } from '@nestjs/common';

/** What an instance does, step by step. */
export type JournalEntry =
  /** May dispatch. `asked` is how many milliseconds ago it asked; without a `ttl` Redis keeps the lock for ever. */
  | {
      readonly kind: 'acquired';
      readonly asked: number;
      readonly locked?: boolean;
      readonly token?: number;
      readonly ttl?: number;
    }
  /** Has not got it: somebody else has. */
  | { readonly kind: 'skipped' }
  /** Has not got it: nobody can tell who has. */
  | { readonly kind: 'unavailable'; readonly message: string }
  | { readonly kind: 'renewed' }
  /** Has ended its work, and gives the lock back now, if it still has it. */
  | { readonly kind: 'released' }
  /** A renewal has failed; there is still time for another one. */
  | { readonly kind: 'unconfirmed'; readonly message: string }
  /** Has found out that its lock is gone, and stopped. */
  | { readonly kind: 'lost'; readonly message: string }
  | { readonly kind: 'read'; readonly tasks: number }
  /** Is about to mark what it has read: all checks are behind it. */
  | { readonly kind: 'writing' }
  /** The database has refused its write, because a later holder was there. */
  | { readonly kind: 'refused'; readonly message: string }
  /** Each `task#dispatch` that it has put into the queue. */
  | { readonly kind: 'pushed'; readonly jobs: readonly string[] }
  | { readonly kind: 'failed'; readonly message: string };

export type JournalEvent = JournalEntry & { readonly at: number };

/** Tells the process that started this one what happens here, when there is one that listens: the lock lab. */
@Injectable()
export class Journal {
  tell(entry: JournalEntry): void {
    if (process.connected) process.send?.({ at: Date.now(), ...entry });
  }
}
