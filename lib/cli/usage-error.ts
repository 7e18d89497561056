/** The command line is incomplete or wrong. The message says what to write, and never shows a password. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
