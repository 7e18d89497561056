#!/usr/bin/env node
import { readFile } from 'node:fs/promises';
import { board } from './board.js';
import { LockUnavailableError } from '../core/errors.js';
import { HELP, type NodeRequest, readCommandLine } from './command-line.js';
import { describe, listDeclared } from './declared.js';
import { doctor } from './doctor.js';
import { ExitCode } from './exit-code.js';
import { printableText } from '../core/printable.js';
import { hold } from './hold.js';
import { inspect } from './inspect.js';
import { leaders } from './leaders.js';
import { list } from './list.js';
import { checkRelease, release } from './release.js';
import { checkNodes } from './check-nodes.js';
import { isEtcd } from './etcd-target.js';
import { isMysql } from './mysql-target.js';
import { isPostgres } from './postgres-target.js';
import { run } from './run.js';
import { openSession } from './session.js';
import { endBy } from './signals.js';
import type { Terminal } from './terminal.js';
import { isZooKeeper } from './zookeeper-target.js';
import { SchemaNames, schemaScript } from '../stores/mysql/schema.js';
import { DEFAULT_SCHEMA, schemaSql } from '../stores/postgres/schema.js';
import { codeOf } from './under-lock.js';
import { UsageError } from './usage-error.js';
import { watch } from './watch.js';

// The command `nestjs-redlock`. It needs ioredis, pg for PostgreSQL and mysql2 for MySQL, but no package of Nest.

const ending = new AbortController();
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  // The program that reads the output, such as `head` in `... | head`, has ended.
  if (error.code === 'EPIPE') ending.abort();
  else throw error;
});

const { stdin: input, stdout: output, stderr: questions } = process;
const terminal: Terminal = { input, output, questions, signal: ending.signal };
process.exitCode = await main();

async function main(): Promise<number> {
  try {
    const request = readCommandLine(process.argv.slice(2), process.env);
    if (request.command === 'postgres-migration') {
      process.stdout.write(schemaSql(request.schema ?? DEFAULT_SCHEMA, request.role));
      return ExitCode.Ok;
    }
    if (request.command === 'mysql-migration') {
      process.stdout.write(schemaScript(new SchemaNames(request.tablePrefix), request.role));
      return ExitCode.Ok;
    }
    if (request.command === 'run' || request.command === 'hold') {
      const end = await (request.command === 'run' ? run(request) : hold(request, terminal));
      if (end.signal !== undefined) endBy(end.signal);
      return codeOf(end);
    }
    if (!('target' in request)) {
      process.stdout.write(request.command === 'help' ? HELP : `${await versionOfPackage()}\n`);
      return ExitCode.Ok;
    }
    return await look(request);
  } catch (error) {
    // Print only the message: an error of ioredis also carries its command, and the command AUTH contains the password.
    const { message } = error as Error;
    if (error instanceof UsageError) {
      process.stderr.write(`nestjs-redlock: ${printableText(message)}\nTry nestjs-redlock --help\n`);
      return ExitCode.Usage;
    }
    process.stderr.write(`nestjs-redlock: ${printableText(message)}\n`);
    if (!(error instanceof LockUnavailableError)) return ExitCode.Unexpected;
    process.stderr.write('Try nestjs-redlock doctor\n');
    return ExitCode.Unavailable;
  }
}

async function look(request: NodeRequest): Promise<number> {
  const { target } = request;
  const isRedis = ![isPostgres, isMysql, isEtcd, isZooKeeper].some((isOther) => isOther(target));
  if (request.command === 'doctor' && isRedis) return doctor(request, terminal);
  if (request.command === 'release') checkRelease(request, terminal);
  if (request.command === 'watch' || request.command === 'board') {
    // Listen only once to each signal, so that a second Ctrl-C ends the process immediately.
    for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => ending.abort());
  }
  const session = await openSession(request.target);
  try {
    switch (request.command) {
      case 'doctor':
        return await checkNodes(session, request, terminal);
      case 'list-declared':
        return await listDeclared(session, request, terminal);
      case 'describe':
        return await describe(session, request, terminal);
      case 'list':
        return await list(session, request, terminal);
      case 'leaders':
        return await leaders(session, request, terminal);
      case 'inspect':
        return await inspect(session, request, terminal);
      case 'board':
        return await board(session, request, terminal);
      case 'watch':
        return await watch(session, request, terminal);
      case 'release':
        return await release(session, request, terminal);
    }
  } finally {
    await session.close();
  }
}

async function versionOfPackage(): Promise<string> {
  const file = new URL('../../../package.json', import.meta.url);
  return (JSON.parse(await readFile(file, 'utf8')) as { version: string }).version;
}
