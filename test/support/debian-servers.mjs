import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/**
 * Servers on which the tests of Redis can run. Each comes from a Debian release (a suite), in the version that the
 * release contains now. The package of such a server has its name.
 */
const REDIS_SERVERS = [
  { name: 'redis@bookworm', program: 'redis-server', suite: 'bookworm' },
  { name: 'redis@trixie', program: 'redis-server', suite: 'trixie' },
  {
    name: 'valkey@bookworm-backports',
    program: 'valkey-server',
    suite: 'bookworm-backports',
    base: 'bookworm',
  },
  { name: 'valkey@trixie', program: 'valkey-server', suite: 'trixie' },
  { name: 'redis@sid', program: 'redis-server', suite: 'sid' },
  { name: 'valkey@sid', program: 'valkey-server', suite: 'sid' },
];

/** Servers of other stores: the package, the path of the program in it, and the name of our script that starts it. */
const OTHER_SERVERS = [
  {
    name: 'mysql@sid',
    package: 'mysql-server-core',
    program: 'usr/sbin/mysqld',
    script: 'mysqld',
    suite: 'sid',
  },
  {
    name: 'mariadb@trixie',
    package: 'mariadb-server-core',
    program: 'usr/sbin/mariadbd',
    script: 'mariadbd',
    suite: 'trixie',
  },
];

const SERVERS = [
  ...REDIS_SERVERS.map((server) => ({
    ...server,
    package: server.program,
    program: `usr/bin/${server.program}`,
    script: 'redis-server',
  })),
  ...OTHER_SERVERS,
];

export const SERVER_NAMES = REDIS_SERVERS.map(({ name }) => name);

const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'nestjs-redlock', 'servers');
const KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg';

/**
 * Downloads a server with all its libraries, and unpacks them into a cache. Needs no root, and installs nothing.
 *
 * @returns the folder with the script that starts the server, such as `redis-server`, for the PATH
 * @throws when the download fails: no apt, no network, no such package
 */
export function debianServer(name) {
  const server = SERVERS.find((each) => each.name === name);
  const folder = join(CACHE, name);
  const bin = join(folder, 'bin');
  if (!existsSync(bin)) {
    // The folder gets its final name only when it is complete.
    const draft = `${folder}.${process.pid}`;
    try {
      unpack(server, draft);
      writeWrapper(server, draft);
      rmSync(folder, { recursive: true, force: true });
      renameSync(draft, folder);
    } finally {
      rmSync(draft, { recursive: true, force: true });
    }
  }
  return bin;
}

/** Returns the version that a `redis-server` reports, such as `Redis 8.0.2`. */
export function versionIn(bin) {
  const said = execFileSync(join(bin, 'redis-server'), ['--version'], { encoding: 'utf8' });
  const [, program, version] = /^(\w+) server v=(\S+)/.exec(said) ?? [];
  return program === undefined ? said.trim() : `${program} ${version}`;
}

function unpack({ package: name, suite, base }, folder) {
  const state = join(folder, 'apt');
  const archives = join(state, 'archives');
  mkdirSync(join(state, 'lists', 'partial'), { recursive: true });
  mkdirSync(join(archives, 'partial'), { recursive: true });
  // apt must believe that nothing is installed: then it downloads the C library and all other libraries, too.
  writeFileSync(join(state, 'status'), '');
  writeFileSync(
    join(state, 'debian.sources'),
    [
      'Types: deb',
      `URIs: ${mirror()}`,
      `Suites: ${[suite, ...(base ? [base] : [])].join(' ')}`,
      'Components: main',
      `Signed-By: ${KEYRING}`,
      '',
    ].join('\n'),
  );
  const settings = [
    `Dir::State=${state}`,
    `Dir::State::status=${join(state, 'status')}`,
    `Dir::Cache=${state}`,
    `Dir::Etc::sourcelist=${join(state, 'debian.sources')}`,
    ...['sourceparts', 'preferences', 'preferencesparts'].map((file) => `Dir::Etc::${file}=/dev/null`),
    'APT::Sandbox::User=',
  ].flatMap((setting) => ['-o', setting]);
  apt(...settings, 'update', '-q', '--error-on=any');
  apt(...settings, 'install', '-q', '-y', '--download-only', '--no-install-recommends', '-t', suite, name);
  for (const file of readdirSync(archives).filter((each) => each.endsWith('.deb'))) {
    execFileSync('dpkg-deb', ['-x', join(archives, file), join(folder, 'root')]);
  }
  rmSync(state, { recursive: true });
}

/** Returns the URL from which this machine downloads Debian packages. */
function mirror() {
  const format = ['indextargets', '--format', '$(REPO_URI)', 'Identifier: Packages', 'Component: main'];
  const [uri] = execFileSync('apt-get', format, { encoding: 'utf8' }).split('\n');
  if (!uri) throw new Error('apt has no source of packages');
  return uri;
}

/** Writes a script that starts the server with its own loader and libraries, as those of the system can be older. */
function writeWrapper({ package: name, program, script }, folder) {
  const files = readdirSync(join(folder, 'root'), { recursive: true });
  const loader = files.find((file) => /(^|\/)ld-linux[^/]*\.so\.\d+$/.test(file));
  if (loader === undefined) throw new Error(`the packages of ${name} have no loader`);
  const libraries = files.flatMap(
    (file) => /^((usr\/)?lib(64|\/[^/]+)?)\/[^/]+\.so\.\d/.exec(file)?.[1] ?? [],
  );
  const wrapper = [
    '#!/bin/sh',
    'root="${0%/*}/../root"',
    `exec "$root/${loader}" --library-path "${[...new Set(libraries)].map((each) => `$root/${each}`).join(':')}" "$root/${program}" "$@"`,
    '',
  ];
  const bin = join(folder, 'bin');
  mkdirSync(bin);
  writeFileSync(join(bin, script), wrapper.join('\n'));
  chmodSync(join(bin, script), 0o755);
  // Fails if the server does not run on this machine.
  execFileSync(join(bin, script), ['--version'], { stdio: 'ignore' });
}

function apt(...args) {
  execFileSync('apt-get', ['-o', 'Acquire::Retries=3', ...args], {
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: 120_000,
  });
}
