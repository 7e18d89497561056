import { NODE_LIMIT_MS } from './session.js';

/** The answer of a node, or an error when it takes too long. */
export async function withTimeout<T>(answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, reject) => {
    const giveUp = (): void => reject(new Error(`no answer within ${NODE_LIMIT_MS} ms`));
    // When the thread was blocked, the answer may be there and unread: it comes first.
    timer = setTimeout(setImmediate, NODE_LIMIT_MS, giveUp);
  });
  try {
    return await Promise.race([answer, limit]);
  } finally {
    clearTimeout(timer);
  }
}
