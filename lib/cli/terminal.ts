import { printableJson } from '../core/printable.js';
import type { Readable, Writable } from 'node:stream';

/** Input and output of a command. */
export interface Terminal {
  readonly input: Readable & { readonly isTTY?: boolean };
  readonly output: Writable & { readonly isTTY?: boolean; readonly rows?: number; readonly columns?: number };
  /** Output for messages and questions to the user. Results have an output of their own, because they may go to a file. */
  readonly errors: Writable;
  /** Aborts on Ctrl-C, or when the program that reads the output has ended. */
  readonly signal: AbortSignal;
}

/** The terminal of a whole command. */
export interface CommandTerminal extends Terminal {
  /** From now on Ctrl-C aborts `signal`, in place of ending the process. */
  endOnSignals(): void;
}

/** Writes lines. */
export function print({ output }: Terminal, ...lines: readonly string[]): void {
  output.write(lines.map((line) => `${line}\n`).join(''));
}

/** Writes a document for programs, on one line. */
export function printJson(terminal: Terminal, document: unknown): void {
  print(terminal, printableJson(JSON.stringify(document)));
}
