/** The keys of exclusive locks. */
export const KEYS = ['a', 'b', 'c'] as const;

/** Describes how a call failed. */
export function reasonOf(error: unknown): string {
  const { code, message } = error as { code?: string; message: string };
  return code ?? message.slice(0, 60);
}
