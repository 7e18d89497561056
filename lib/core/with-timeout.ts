/**
 * Resolves to the answer, or rejects when the answer takes too long.
 *
 * @param limit - milliseconds
 */
export async function withTimeout<T>(answer: Promise<T>, limit: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const giveUp = (): void => reject(new Error(`no answer within ${limit} ms`));
    // When the event loop was blocked, an answer may have arrived that Node has not read yet. `setImmediate` lets Node
    // read the answer first.
    timer = setTimeout(setImmediate, limit, giveUp);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
