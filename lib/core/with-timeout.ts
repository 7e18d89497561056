/**
 * Resolves to the answer, or rejects when it takes too long.
 *
 * @param limit - milliseconds
 */
export async function withTimeout<T>(answer: Promise<T>, limit: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const giveUp = (): void => reject(new Error(`no answer within ${limit} ms`));
    // If the thread was blocked, the answer may have arrived unread. `setImmediate` lets it come first.
    timer = setTimeout(setImmediate, limit, giveUp);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
