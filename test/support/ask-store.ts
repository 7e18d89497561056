import type { Lease } from '../../lib/core/lease.js';
import type { AcquireReply, AcquireRequest, LockStore, Tell } from '../../lib/core/ports.js';

// These functions send one request to a store, and return a Promise for the answer.

/** Terms of a request to store a lease; by default for a single node without a queue, with a time limit of a minute. */
export type AcquireTerms = Partial<Omit<AcquireRequest, 'lease'>> & { readonly ordered?: boolean };

export function acquireOn(
  store: LockStore,
  lease: Lease,
  { ordered = false, ...terms }: AcquireTerms = {},
): Promise<AcquireReply> {
  const request = {
    lease,
    since: Date.now(),
    limit: 60_000,
    guard: 0,
    proposal: 0,
    position: undefined,
    ...terms,
  };
  return answerOf((tell) => store.acquire([request], ordered, tell));
}

export function extendOn(store: LockStore, lease: Lease, ttl: number): Promise<boolean> {
  return answerOf((tell) => store.extend([lease], ttl, tell));
}

export function releaseOn(store: LockStore, lease: Lease, pause = 0): Promise<undefined> {
  return answerOf((tell) => store.release([{ lease, pause }], tell));
}

function answerOf<Reply>(ask: (tell: Tell<Reply>) => void): Promise<Reply> {
  return new Promise((resolve, reject) => {
    ask((_, reply) => (reply instanceof Error ? reject(reply) : resolve(reply)));
  });
}
