/** Times that are the same in every store, so that waiters and tokens behave alike whatever keeps the locks. */

/** Milliseconds for the first waiter to take a free lock. After that time, the waiter is removed from the queue. */
export const TURN_MS = 150;

/**
 * Milliseconds from the start of a turn until the waiters behind the first waiter may try, because the process of the
 * first waiter may be dead. The turn has ended by then.
 */
export const STANDBY_MS = 200;

/**
 * Milliseconds by which a call may seem to come later than its entry in the queue: not all of its requests are on their way
 * for the same time. A waiter that comes later than that is another call of its process, and the one before gave up.
 */
export const SAME_CALL_MS = 100;

/** The life of a mark, in milliseconds (S22). Its waiter sets it again every second. */
export const MARK_MS = 2_000;

/** Milliseconds without a request after which a waiter counts as dead. A waiter asks every few seconds. */
export const WAITER_LIFE_MS = 60_000;

/**
 * Milliseconds for which the last token of a key is kept after its lock was released or has expired: the linger.
 * Afterwards a new token, which is never behind the clock, is larger anyway, unless the clock was set back by at least
 * the linger minus `LEAD_MS`.
 *
 * In Redis the value is a part of the data format: a process with a larger value would take a held lock for an expired
 * one.
 */
export const LINGER_MS = 30_000;
