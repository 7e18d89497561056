/** Exit codes of the command; documented in docs/cli.md. */
export const ExitCode = {
  Ok: 0,
  /** Asked for something that is not so: the key is not held, `doctor` found a problem. */
  No: 1,
  Usage: 2,
  /** Too few nodes answered. */
  Unavailable: 3,
  /** Something that should not happen. */
  Unexpected: 4,
} as const;
