/** Exit codes of the commands; documented in docs/cli.md and docs/run.md. */
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

/**
 * Exit codes of `run` and `hold` in place of those above. They are those of `sysexits.h`, and of shells, so that a
 * command under a lock rarely has the same ones. 2 stays the code of a wrong command line.
 */
export const RunExitCode = {
  /** EX_UNAVAILABLE: too few nodes answered. */
  Unavailable: 69,
  /** EX_SOFTWARE: an error that has no exit code of its own. */
  Unexpected: 70,
  /** EX_OSERR: the system refused a process for the command. */
  System: 71,
  /** EX_IOERR: the lock was lost while it was needed. */
  Lost: 74,
  /** EX_TEMPFAIL: others held the lock. */
  Held: 75,
  /** The command is no program that can be run. */
  NotExecutable: 126,
  /** The command does not exist. */
  NotFound: 127,
  /** Added to the number of the signal that ended the command. */
  Signal: 128,
} as const;
