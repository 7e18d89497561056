#!/usr/bin/env node
import { runCommand } from './command.js';
import { codeOf } from './process-group.js';
import { endBy } from './signals.js';
import type { CommandTerminal } from './terminal.js';

// The process of the command `nestjs-redlock`.

const ending = new AbortController();
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // The program that reads the output, such as `head` in `... | head`, has ended.
  if (error.code === 'EPIPE') ending.abort();
  else throw error;
});

const terminal: CommandTerminal = {
  input: process.stdin,
  output: process.stdout,
  errors: process.stderr,
  signal: ending.signal,
  endOnSignals() {
    // Listen only once to each signal, so that a second Ctrl-C ends the process immediately.
    for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => ending.abort());
  },
};
// Without `await`: the bundles of the commands import this file, so each would wait for the end of the other.
void runCommand(process.argv.slice(2), process.env, terminal).then((end) => {
  if (end.signal !== undefined) endBy(end.signal);
  process.exitCode = codeOf(end);
});
