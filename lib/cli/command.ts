import { readFile } from 'node:fs/promises';
import { LockUnavailableError } from '../core/errors.js';
import { printableText } from '../core/printable.js';
import { SchemaNames, schemaScript } from '../stores/mysql/schema.js';
import { DEFAULT_SCHEMA, schemaSql } from '../stores/postgres/schema.js';
import { HELP, readCommandLine } from './command-line.js';
import { ExitCode } from './exit-code.js';
import type { CommandEnd } from './process-group.js';
import type { CommandTerminal } from './terminal.js';
import { UsageError } from './usage-error.js';

// The code of a command is loaded when the command runs, and a client such as ioredis when a node is opened: together
// they take several times as long to load as Node.js to start. No command needs a package of Nest.

/** Runs the command of a command line until it ends. Prints why it fails. */
export async function runCommand(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  terminal: CommandTerminal,
): Promise<CommandEnd> {
  const { output, errors } = terminal;
  try {
    const request = readCommandLine(args, env);
    switch (request.command) {
      case 'help':
        output.write(HELP);
        break;
      case 'version':
        output.write(`${await versionOfPackage()}\n`);
        break;
      case 'postgres-migration':
        output.write(schemaSql(request.schema ?? DEFAULT_SCHEMA, request.role));
        break;
      case 'mysql-migration':
        output.write(schemaScript(new SchemaNames(request.tablePrefix), request.role));
        break;
      case 'run': {
        const { run } = await import('./run.js');
        return await run(request);
      }
      case 'hold': {
        const { hold } = await import('./hold.js');
        return await hold(request, terminal);
      }
      default: {
        const { look } = await import('./look.js');
        return { code: await look(request, terminal) };
      }
    }
    return { code: ExitCode.Ok };
  } catch (error) {
    // Print only the message: an error of ioredis also carries its command, and the command AUTH contains the password.
    const { message } = error as Error;
    if (error instanceof UsageError) {
      errors.write(`nestjs-redlock: ${printableText(message)}\nTry nestjs-redlock --help\n`);
      return { code: ExitCode.Usage };
    }
    errors.write(`nestjs-redlock: ${printableText(message)}\n`);
    if (!(error instanceof LockUnavailableError)) return { code: ExitCode.Unexpected };
    errors.write('Try nestjs-redlock doctor\n');
    return { code: ExitCode.Unavailable };
  }
}

async function versionOfPackage(): Promise<string> {
  const file = new URL('../../../package.json', import.meta.url);
  return (JSON.parse(await readFile(file, 'utf8')) as { version: string }).version;
}
