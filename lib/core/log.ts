/**
 * The place where a module writes the lines of its log; the `Logger` of Nest is one. Wrap a log of the application in
 * {@link quiet}.
 */
export interface Log {
  debug(message: string): void;
  log(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** A log on the standard error stream, for programs without Nest. It leaves the standard output to the program. */
export const STDERR_LOG: Log = {
  debug: () => undefined,
  log: toStderr,
  warn: toStderr,
  error: toStderr,
};

function toStderr(message: string): void {
  process.stderr.write(`nestjs-redlock: ${message}\n`);
}

/**
 * Makes a log that never throws of a log that the application gives. A lost lock or connection is logged from a timer or
 * an event, where no caller catches the error, so the error would end the process.
 */
export function quiet(log: Log): Log {
  const quietly =
    (level: keyof Log) =>
    (message: string): void => {
      try {
        log[level](message);
      } catch {
        // The logger has failed, so the error cannot be reported.
      }
    };
  return {
    debug: quietly('debug'),
    log: quietly('log'),
    warn: quietly('warn'),
    error: quietly('error'),
  };
}
