type Cleanup = () => Promise<void>;

const cleanups = new Set<Cleanup>();

/**
 * Registers something that must not outlive the test file. Servers and proxies of this folder register
 * themselves, so that a test that fails half-way leaves no process behind. Returns the way to take it back.
 */
export function cleanUpAfterTests(cleanup: Cleanup): () => void {
  cleanups.add(cleanup);
  return () => cleanups.delete(cleanup);
}

/** Runs every registered clean-up, even if some fail, and reports the failures. */
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
