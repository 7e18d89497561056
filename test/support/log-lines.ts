import type { LoggerService } from '@nestjs/common';

/** A logger that keeps the lines of one context, by default the lines of RedlockModule. */
export class LogLines implements LoggerService {
  readonly lines: { readonly level: string; readonly text: string }[] = [];

  constructor(private readonly context = 'RedlockModule') {}

  debug(message: unknown, ...rest: unknown[]): void {
    this.#keep('debug', message, rest);
  }

  log(message: unknown, ...rest: unknown[]): void {
    this.#keep('log', message, rest);
  }

  warn(message: unknown, ...rest: unknown[]): void {
    this.#keep('warn', message, rest);
  }

  error(message: unknown, ...rest: unknown[]): void {
    this.#keep('error', message, rest);
  }

  of(level: string): string[] {
    return this.lines.filter((line) => line.level === level).map(({ text }) => text);
  }

  #keep(level: string, message: unknown, rest: readonly unknown[]): void {
    if (rest.at(-1) === this.context) this.lines.push({ level, text: String(message) });
  }
}
