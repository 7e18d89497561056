import { NODE_LIMIT_MS } from './session.js';

/** The answer of a node, or an error when it takes too long. */
export async function within<T>(answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${NODE_LIMIT_MS} ms`)), NODE_LIMIT_MS);
  });
  try {
    return await Promise.race([answer, limit]);
  } finally {
    clearTimeout(timer);
  }
}
