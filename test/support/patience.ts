/**
 * How long a node may take to answer, in milliseconds, in tests that are about something else: as long as the ttl
 * allows, which is a fifth of it. By default a single attempt gives up after a twentieth, which passes while a busy
 * machine stands still.
 */
export const PATIENT = { nodeTimeout: 60_000 } as const;
