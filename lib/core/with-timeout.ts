/**
 * Resolves to the answer, or rejects when the answer takes too long.
 *
 * @param limit - milliseconds
 */
export async function withTimeout<T>(answer: Promise<T>, limit: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const giveUp = (): void => reject(new Error(`no answer within ${limit} ms`));
    // After a blocked event loop the answer may have arrived, but is not read yet. `setImmediate` lets Node read the
    // answer first.
    timer = setTimeout(setImmediate, limit, giveUp);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
