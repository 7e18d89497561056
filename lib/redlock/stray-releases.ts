import type { Lease } from '../core/lease.js';
import type { Nodes } from './nodes.js';
import { release } from './release.js';

/**
 * Milliseconds after the deadline of a request until no node carries it out (S16). A node may take the request for one
 * that has time left, because its clock is only estimated.
 */
export const STRAY_MARGIN_MS = 200;

/** Parameters of {@link drop}. */
export interface DropTerms {
  /** Milliseconds within which a node must answer. */
  readonly limit: number;
  /** `true` if a node may still carry out a request to store the lease, until its deadline (S16). */
  readonly mayComeLater: boolean;
}

/**
 * Releases a lease that nobody needs any more. Resolves as {@link release} does. If a node may still store the lease, the
 * release is repeated after the deadline of that request (S27).
 */
export function drop(nodes: Nodes, lease: Lease, { limit, mayComeLater }: DropTerms): Promise<void> {
  lease.ended = true;
  if (mayComeLater) releaseAgain(nodes, lease, limit, limit + STRAY_MARGIN_MS);
  return releaseOnce(nodes, lease, limit);
}

/** Releases a lease once more after so many milliseconds: a node may have stored it after its release (S27). */
export function releaseAgain(nodes: Nodes, lease: Lease, limit: number, milliseconds: number): void {
  setTimeout(() => {
    if (!nodes.isClosed) void releaseOnce(nodes, lease, limit);
  }, milliseconds).unref();
}

function releaseOnce(nodes: Nodes, lease: Lease, limit: number): Promise<void> {
  return release(nodes, lease, limit, () => undefined);
}
