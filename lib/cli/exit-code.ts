/** Exit codes of the command; documented in docs/cli.md. */
export const ExitCode = {
  Ok: 0,
  /** The answer is no: the key is not held, or `doctor` found a problem. */
  No: 1,
  Usage: 2,
  /** Too few nodes answered. */
  Unavailable: 3,
  /** An error that has no exit code of its own. */
  Unexpected: 4,
} as const;
