// `node:util` reads the command line, because a package for that would be a dependency of every application that
// installs this library.
import { parseArgs } from 'node:util';
import { oneKey } from '../core/keys.js';
import { isRole, isTablePrefix } from '../stores/mysql/schema.js';
import { isIdentifier } from '../stores/postgres/schema.js';
import {
  HOLD_OPTIONS,
  holdOf,
  type HoldRequest,
  RUN_OPTIONS,
  runOf,
  type RunRequest,
} from './lock-request.js';
import { wholeNumber } from './number-option.js';
import { MYSQL_SCHEME, type Target } from './target.js';
import { UsageError } from './usage-error.js';

interface Common {
  readonly target: Target;
  readonly json: boolean;
}

/** Parsed command. */
export type Request =
  | { readonly command: 'help' | 'version' }
  | {
      readonly command: 'postgres-migration';
      readonly schema: string | undefined;
      readonly role: string | undefined;
    }
  | {
      readonly command: 'mysql-migration';
      readonly tablePrefix: string | undefined;
      readonly role: string | undefined;
    }
  | (Common & { readonly command: 'list'; readonly prefix: string; readonly limit: number | undefined })
  | (Common & { readonly command: 'list-declared'; readonly locks: string })
  | (Common & { readonly command: 'describe'; readonly name: string; readonly locks: string })
  | (Common & { readonly command: 'leaders' })
  | (Common & { readonly command: 'inspect'; readonly key: string })
  | (Common & { readonly command: 'watch'; readonly prefix: string; readonly interval: number })
  | (Common & {
      readonly command: 'release';
      readonly key: string;
      /** Id of the holder whose lock is released; `undefined` to release the locks of all holders. */
      readonly id: string | undefined;
      readonly yes: boolean;
    })
  | (Common & { readonly command: 'doctor' })
  | (Common & {
      readonly command: 'board';
      /** TCP port; 0 for any free port. */
      readonly port: number;
      readonly allowRelease: boolean;
    })
  | RunRequest
  | HoldRequest;

/** A parsed command that looks at the locks of the nodes. */
export type NodeRequest = Extract<Request, Common>;

/** The parsed form of one command. */
export type RequestFor<Command extends Request['command']> = Extract<Request, { readonly command: Command }>;

const OPTIONS = {
  node: { type: 'string', multiple: true, short: 'n' },
  'key-prefix': { type: 'string' },
  ca: { type: 'string' },
  cert: { type: 'string' },
  key: { type: 'string' },
  insecure: { type: 'boolean' },
  schema: { type: 'string' },
  'table-prefix': { type: 'string' },
  role: { type: 'string' },
  json: { type: 'boolean' },
  declared: { type: 'boolean' },
  locks: { type: 'string' },
  limit: { type: 'string' },
  interval: { type: 'string' },
  id: { type: 'string' },
  yes: { type: 'boolean', short: 'y' },
  port: { type: 'string' },
  'allow-release': { type: 'boolean' },
  ttl: { type: 'string' },
  wait: { type: 'string' },
  skip: { type: 'boolean' },
  quiet: { type: 'boolean', short: 'q' },
  permits: { type: 'string' },
  shared: { type: 'boolean' },
  'min-hold': { type: 'string' },
  'kill-after': { type: 'string' },
  for: { type: 'string' },
  reason: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean' },
} as const;

const COMMON = ['node', 'key-prefix', 'ca', 'cert', 'key', 'insecure', 'schema', 'table-prefix', 'json'];

const MIGRATION = 'postgres-migration';

/** Prints the SQL for the database of a URL. */
const SCHEMA = 'schema';

/**
 * The options of each command besides the common options, and the operand of the command, in brackets if it is
 * optional.
 */
const COMMANDS: Readonly<
  Record<
    Exclude<NodeRequest['command'], 'list-declared'> | 'run' | 'hold',
    { options: readonly string[]; operand?: string }
  >
> = {
  list: { options: ['limit', 'declared', 'locks'], operand: '[PREFIX]' },
  leaders: { options: [] },
  inspect: { options: [], operand: 'KEY' },
  watch: { options: ['interval'], operand: '[PREFIX]' },
  release: { options: ['id', 'yes'], operand: 'KEY' },
  doctor: { options: [] },
  board: { options: ['port', 'allow-release'] },
  describe: { options: ['locks'], operand: 'NAME' },
  run: { options: RUN_OPTIONS, operand: 'KEY' },
  hold: { options: HOLD_OPTIONS, operand: 'KEY' },
};

/** Shortest `--interval`, so that polls do not slow down the nodes. */
const SHORTEST_INTERVAL_MS = 100;

export const HELP = `Shows the locks of nestjs-redlock, and runs commands under them.

Usage: nestjs-redlock <command> --node URL [--node URL ...] [options]

Commands:
  list [PREFIX]     list the held locks: all keys, or the keys that begin with PREFIX
  list --declared --locks FILE
                    list the declared locks, each with the number of its held keys
  describe NAME --locks FILE
                    show how a lock is declared, and who holds it
  leaders           list the names of @Leader, each with the present leader
  inspect KEY       show who holds a lock, and the answer of each node
  watch [PREFIX]    show the held locks and their changes, until Ctrl-C
  release KEY       release a lock of any holder by force; asks for confirmation
  run KEY [options] -- COMMAND
                    run a command while this process holds the lock; the command's exit code passes through
  hold KEY --for DURATION --reason TEXT
                    hold the lock so that nobody else gets it, until the end or Ctrl-C
  doctor            check whether the nodes are fit for locks, and say what to change
  board             serve a page about the locks and nodes, only for this machine, until Ctrl-C
  schema            print the SQL that makes the tables and functions for locks in the database of --node, a
                    PostgreSQL, MySQL or MariaDB; asks no server
  postgres-migration
                    the same for PostgreSQL, without --node

Nodes:
  -n, --node URL    the URL of a node; repeat it for each node in the application's \`nodes\`.
                    Or set REDLOCK_NODES to URLs with commas or spaces between them, which also keeps
                    passwords out of the list of processes.
                      redis://[user:password@]host[:port][/db]
                      rediss://...                                       with TLS
                      unix:///path/to/socket
                      redis+sentinel://[user:password@]host[:port],host[:port]/name[/db]
                      redis+cluster://[user:password@]host[:port],host[:port]
                      postgres://[user[:password]@]host[:port]/database  must be the only node
                      mysql://[user[:password]@]host[:port]/database     or mariadb://; must be the only node
                      http://[user:password@]host:port                   a member of etcd; or https://
                      zookeeper://[user:password@]host[:port],.../path  must be the only node; or zookeepers://, with TLS;
                                                                         with ?scheme=sasl at the end, by DIGEST-MD5
  --key-prefix TEXT the application's \`keyPrefix\`; default "lock:"
  --ca FILE         trust this certificate authority
  --cert FILE       certificate of this client
  --key FILE        key of that certificate
  --insecure        do not check the server's certificate
  --schema NAME     PostgreSQL: the schema of the tables; default "redlock"
  --table-prefix TEXT
                    MySQL: the beginning of the names of the tables; default "redlock_"

Options:
  --json            print JSON, for programs
  --limit N         list: stop after N locks
  --locks FILE      list --declared, describe: the JavaScript file that exports the result of defineLocks
  --interval MS     watch: milliseconds between two polls; default 1000
  --id ID           release: only for the holder with this id, which inspect shows
  -y, --yes         release: do not ask for confirmation
  --port N          board: the TCP port; default any free port
  --allow-release   board: allow the page to release locks by force; the page asks for confirmation
  --wait DURATION   run, hold: wait at most this long, such as 30s, 5m or 2h; default as long as others hold the lock
  --skip            run, hold: do not wait
  --ttl DURATION    run, hold: how long the lock outlives a crash of this process; default 10s. It is renewed meanwhile
  -q, --quiet       run, hold: write nothing about a lock that others hold
  --permits N       run: N commands at a time
  --shared          run: together with others that are shared
  --min-hold DURATION
                    run: keep the lock at least this long, even if the command ends sooner
  --kill-after DURATION
                    run: time from SIGTERM to SIGKILL after the lock is lost; default 5s
  --for DURATION    hold: end after this time, counted from now
  --reason TEXT     hold: the reason, for everybody who finds the lock held
  --role NAME       schema, postgres-migration: give this role the rights that an application needs; in MySQL a user
                    such as app or app@10.0.0.%
  -h, --help        print this text
  --version         print the version

Exit codes: 0 done; 1 not held, or doctor found a problem; 2 wrong command line; 3 too few nodes answered, also for doctor;
4 other errors. run has the command's exit code; its own, as of hold: 69 too few nodes answered; 70 other errors; 71 no
process for the command; 74 the lock was lost; 75 others hold the lock; 126 the command cannot be run; 127 it is not there.
`;

/**
 * Reads the command line.
 *
 * @throws UsageError
 */
export function readCommandLine(args: readonly string[], env: NodeJS.ProcessEnv): Request {
  const { values, positionals, words } = parse(args);
  if (values.help) return { command: 'help' };
  if (values.version) return { command: 'version' };
  const [name, ...operands] = positionals;
  const commands = [...Object.keys(COMMANDS), SCHEMA, MIGRATION].join(', ');
  if (name === undefined) throw new UsageError(`No command. Write one of ${commands}`);
  checkIdentifier('--schema', values.schema);
  checkTablePrefix(values['table-prefix']);
  if (name === MIGRATION) return migrationOf(values, operands);
  if (name === SCHEMA) return schemaOf(values, operands, env);
  if (!isCommand(name)) {
    // The name may be a URL with a password. Show the name only when it cannot be a URL.
    const shown = /^\w+$/.test(name) ? ` "${name}"` : '';
    throw new UsageError(`Unknown command${shown}. Write one of ${commands}`);
  }
  const { options, operand } = COMMANDS[name];
  const stray = Object.keys(values).find((option) => ![...COMMON, ...options].includes(option));
  if (stray !== undefined) throw new UsageError(`${name} does not take --${stray}`);
  const usage = ['nestjs-redlock', name, ...(operand === undefined ? [] : [operand])].join(' ');
  if (operands.length > (operand === undefined ? 0 : 1)) {
    const hint = name === 'run' ? ' -- COMMAND: the command comes after --' : '';
    throw new UsageError(`Too many arguments after ${name}. Write ${usage}${hint}`);
  }
  const [text = ''] = operands;
  if (operand === 'KEY') checkKey(text, usage);

  const common: Common = { target: targetOf(values, env), json: values.json ?? false };
  switch (name) {
    case 'run':
    case 'hold':
      if (common.json) throw new UsageError(`${name} does not take --json: it has no result to print`);
      return name === 'run' ? runOf(common.target, text, values, words) : holdOf(common.target, text, values);
    case 'list':
      if (values.declared) return listDeclaredOf(common, values, text);
      if (values.locks !== undefined)
        throw new UsageError('--locks works only with list --declared: write both');
      return { command: name, ...common, prefix: text, limit: wholeNumber('--limit', values.limit, 1) };
    case 'watch': {
      const interval = wholeNumber('--interval', values.interval, SHORTEST_INTERVAL_MS) ?? 1_000;
      return { command: name, ...common, prefix: text, interval };
    }
    case 'describe':
      if (text === '') throw new UsageError(`No name. Write ${usage} --locks FILE`);
      return { command: name, ...common, name: text, locks: locksFileOf(values, `${name} ${text}`) };
    case 'inspect':
      return { command: name, ...common, key: text };
    case 'release':
      if (values.id === '') throw new UsageError('No id after --id. Write an id from the output of inspect');
      return { command: name, ...common, key: text, id: values.id, yes: values.yes ?? false };
    case 'leaders':
    case 'doctor':
      return { command: name, ...common };
    case 'board':
      if (common.json) throw new UsageError('board does not take --json: it serves a page');
      return {
        command: name,
        ...common,
        port: portOf(values.port),
        allowRelease: values['allow-release'] ?? false,
      };
  }
}

function listDeclaredOf(common: Common, values: Values, prefix: string): RequestFor<'list-declared'> {
  if (prefix !== '' || values.limit !== undefined)
    throw new UsageError('list --declared lists all declared locks: leave out PREFIX and --limit');
  return { command: 'list-declared', ...common, locks: locksFileOf(values, 'list --declared') };
}

function locksFileOf({ locks }: Values, command: string): string {
  if (locks !== undefined && locks !== '') return locks;
  throw new UsageError(
    `No file with declared locks. Write nestjs-redlock ${command} --locks FILE, where FILE is the JavaScript file ` +
      'that exports the result of defineLocks, such as dist/locks.js',
  );
}

function migrationOf(values: Values, operands: readonly string[]): RequestFor<'postgres-migration'> {
  const stray = Object.keys(values).find((option) => !['schema', 'role'].includes(option));
  if (stray !== undefined) throw new UsageError(`${MIGRATION} does not take --${stray}`);
  if (operands.length > 0)
    throw new UsageError(`Too many arguments after ${MIGRATION}. Write nestjs-redlock ${MIGRATION}`);
  checkIdentifier('--role', values.role);
  return { command: MIGRATION, schema: values.schema, role: values.role };
}

function schemaOf(
  values: Values,
  operands: readonly string[],
  env: NodeJS.ProcessEnv,
): RequestFor<'postgres-migration' | 'mysql-migration'> {
  const taken = ['node', 'schema', 'table-prefix', 'role'];
  const stray = Object.keys(values).find((option) => !taken.includes(option));
  if (stray !== undefined) throw new UsageError(`${SCHEMA} does not take --${stray}`);
  if (operands.length > 0)
    throw new UsageError(`Too many arguments after ${SCHEMA}. Write nestjs-redlock ${SCHEMA} --node URL`);
  const { nodes, source, schema, tablePrefix } = targetOf(values, env);
  const [url = '', second] = nodes;
  const { role } = values;
  if (second === undefined && /^postgres(ql)?:\/\//.test(url)) {
    checkIdentifier('--role', role);
    return { command: MIGRATION, schema, role };
  }
  if (second !== undefined || !MYSQL_SCHEME.test(url))
    throw new UsageError(
      `Expected ${source} to be one URL that begins with postgres://, mysql:// or mariadb://: other stores have no tables`,
    );
  if (role !== undefined && !isRole(role))
    throw new UsageError(`Expected --role to be a user such as app or app@10.0.0.%, got "${role}"`);
  return { command: 'mysql-migration', tablePrefix, role };
}

function checkTablePrefix(prefix: string | undefined): void {
  if (prefix === undefined || isTablePrefix(prefix)) return;
  const rule = 'lower-case letters, digits and underscores, at most 30, not beginning with a digit';
  throw new UsageError(`Expected --table-prefix to be ${rule}, got "${prefix}"`);
}

function checkIdentifier(option: string, name: string | undefined): void {
  if (name === undefined || isIdentifier(name)) return;
  const rule = 'letters, digits and underscores, at most 63, not beginning with a digit';
  throw new UsageError(`Expected ${option} to be ${rule}, got "${name}"`);
}

function checkKey(key: string, usage: string): void {
  if (key === '') throw new UsageError(`No key. Write ${usage}`);
  try {
    oneKey(key);
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

type Values = ReturnType<typeof parse>['values'];

/** @returns also the words after `--`, which only `run` does not take as operands */
function parse(args: readonly string[]) {
  try {
    const parsed = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true, tokens: true });
    const end = parsed.tokens.find(({ kind }) => kind === 'option-terminator')?.index;
    if (parsed.positionals[0] !== 'run' || end === undefined) return { ...parsed, words: undefined };
    const words = args.slice(end + 1);
    const { positionals } = parsed;
    return { ...parsed, words, positionals: positionals.slice(0, positionals.length - words.length) };
  } catch (error) {
    // Drop the text after the first sentence. It is advice about operands that begin with a dash, and no command has
    // such operands.
    const [reason = 'Bad command line'] = (error as Error).message.split(/\. |\n/);
    const isUnseparated = args.includes('run') && !args.includes('--');
    throw new UsageError(reason + (isUnseparated ? '. Write -- before the command of run' : ''));
  }
}

function isCommand(name: string): name is keyof typeof COMMANDS {
  return Object.hasOwn(COMMANDS, name);
}

function targetOf(values: Values, env: NodeJS.ProcessEnv): Target {
  const fromEnv = (env['REDLOCK_NODES'] ?? '').split(/[\s,]+/);
  const nodes = values.node ?? joinHosts(fromEnv.filter((url) => url !== ''));
  if (nodes.length === 0) {
    throw new UsageError(
      'No Redis node. Write --node redis://localhost:6379, repeated for each node, or set REDLOCK_NODES',
    );
  }
  if ((values.cert === undefined) !== (values.key === undefined)) {
    throw new UsageError('--cert and --key go together: write both or neither');
  }
  const { ca, cert, key, insecure = false } = values;
  const source = values.node ? '--node' : 'REDLOCK_NODES';
  const { schema, 'table-prefix': tablePrefix } = values;
  const keyPrefix = values['key-prefix'] ?? 'lock:';
  return { nodes, source, keyPrefix, ca, cert, key, insecure, schema, tablePrefix };
}

/**
 * Joins the parts of a list that was split at commas. A comma also separates the hosts of a Sentinel, Cluster or ZooKeeper,
 * so a part without a scheme belongs to the part before it.
 */
function joinHosts(parts: readonly string[]): string[] {
  const urls: string[] = [];
  for (const part of parts) {
    const before = urls.at(-1);
    if (!part.includes('://') && before !== undefined && /^(?:rediss?\+|zookeepers?:)/.test(before)) {
      urls[urls.length - 1] = `${before},${part}`;
    } else urls.push(part);
  }
  return urls;
}

function portOf(text: string | undefined): number {
  const port = wholeNumber('--port', text, 0) ?? 0;
  if (port > 65_535) throw new UsageError(`Expected --port to be at most 65535, got "${port}"`);
  return port;
}
