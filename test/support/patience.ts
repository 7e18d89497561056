/**
 * Time limit of a node in tests that are about something else, in milliseconds. The library takes a fifth of the ttl if
 * that is less. The default of a single attempt is a twentieth of the ttl, which is too short for a busy machine.
 */
export const PATIENT = { nodeTimeout: 60_000 } as const;
