/** An answer takes too long. */
export class NoAnswerError extends Error {
  constructor(limit: number) {
    super(`no answer within ${limit} ms`);
  }
}

/**
 * Resolves to the answer.
 *
 * @param limit - milliseconds
 * @throws NoAnswerError when the answer takes too long
 */
export async function withTimeout<T>(answer: Promise<T>, limit: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    const giveUp = (): void => reject(new NoAnswerError(limit));
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
