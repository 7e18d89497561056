import { Logger } from '@nestjs/common';

/**
 * A logger whose methods never throw. An application may give Nest a logger of its own, which may throw. A lost lock or
 * connection is logged from a timer or an event, where no caller catches the error, so the error would end the process.
 */
export class QuietLogger extends Logger {
  override log(message: string): void {
    quietly(() => super.log(message));
  }

  override warn(message: string): void {
    quietly(() => super.warn(message));
  }

  override error(message: string): void {
    quietly(() => super.error(message));
  }
}

function quietly(log: () => void): void {
  try {
    log();
  } catch {
    // The logger has failed, so the error cannot be reported.
  }
}
