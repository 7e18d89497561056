/** The command line does not say what to do, or how. The message says what to write, and never what a password is. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}
