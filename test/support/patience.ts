/**
 * A long time limit of a node, for tests in which the limit does not matter. The library shortens it to a fifth of the
 * ttl. The default limit is a twentieth of the ttl, which is too short for a busy machine.
 */
export const PATIENT = { nodeTimeout: 60_000 } as const;
