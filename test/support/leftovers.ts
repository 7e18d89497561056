type Cleanup = () => Promise<void>;

const cleanups = new Set<Cleanup>();

/**
 * Registers a clean-up, which runs after the test file. Servers and proxies of this folder register themselves: a test
 * that fails half-way leaves no process behind. Returns a function that removes the registration.
 */
export function cleanUpAfterTests(cleanup: Cleanup): () => void {
  cleanups.add(cleanup);
  return () => cleanups.delete(cleanup);
}

/** Runs all registered clean-ups, even if some of them fail, and reports the failures. */
export async function cleanUpLeftovers(): Promise<void> {
  const pending = [...cleanups];
  cleanups.clear();
  const results = await Promise.allSettled(pending.map((cleanup) => cleanup()));
  const errors = results.flatMap((result) =>
    result.status === 'rejected' ? [result.reason as unknown] : [],
  );
  if (errors.length > 0) {
    throw new AggregateError(errors, 'could not clean up after the tests');
  }
}
