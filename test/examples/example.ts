import { type ChildProcess, spawn } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { packPackage } from '../consumers/packed-package.js';
import { runCommand } from '../consumers/run-command.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { until } from '../support/until.js';

const ROOT = resolve(import.meta.dirname, '../..');

/**
 * Builds copies of `examples/NAME` as `npm start` does. A copy has the packed package, links to the dependencies of its
 * package.json, and no other modules. Nothing is installed, because an installation would take a minute, and because
 * the tests in test/consumers install the package.
 *
 * @returns the folder with the copies
 */
export async function buildExamples(names: readonly string[]): Promise<string> {
  const parent = await mkdtemp(join(tmpdir(), 'examples-'));
  cleanUpAfterTests(() => rm(parent, { recursive: true, force: true }));
  const { tarball } = await packPackage(parent);
  for (const name of names) await copyExample(name, parent, tarball);
  await compile(names, parent);
  return parent;
}

async function copyExample(name: string, parent: string, tarball: string): Promise<void> {
  const folder = join(parent, name);
  await cp(join(ROOT, 'examples', name), folder, { recursive: true });
  const { dependencies, devDependencies } = JSON.parse(
    await readFile(join(folder, 'package.json'), 'utf8'),
  ) as { dependencies: object; devDependencies: object };
  const modules = join(folder, 'node_modules');
  for (const each of Object.keys({ ...dependencies, ...devDependencies })) {
    if (each === 'nestjs-redlock') continue;
    await mkdir(dirname(join(modules, each)), { recursive: true });
    await symlink(join(ROOT, 'node_modules', each), join(modules, each));
  }
  const own = join(modules, 'nestjs-redlock');
  await mkdir(own);
  await runCommand('tar', ['-xzf', tarball, '-C', own, '--strip-components=1'], { cwd: folder });
}

/** One run of the compiler reads the types of Nest once for all examples, which have the same `tsconfig.json`. */
async function compile(names: readonly string[], parent: string): Promise<void> {
  const configs = await Promise.all(
    names.map((name) => readFile(join(parent, name, 'tsconfig.json'), 'utf8')),
  );
  const [config = ''] = configs;
  const { compilerOptions } = JSON.parse(config) as { compilerOptions: object };
  for (const [index, name] of names.entries()) {
    if (configs[index] !== config) throw new Error(`examples/${name} has other options of the compiler`);
  }
  const typeRoots = [`${names[0]}/node_modules/@types`];
  const options = { ...compilerOptions, rootDir: '.', outDir: 'built', typeRoots };
  const include = names.map((name) => `${name}/src`);
  await writeFile(join(parent, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, include }));
  const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
  await runCommand(process.execPath, [compiler], { cwd: parent });
  for (const name of names) await rename(join(parent, 'built', name, 'src'), join(parent, name, 'dist'));
}

/** Lines on stderr that only say that the machine is busy: `cron` fires late, or Redis answers late. */
const LATE = [
  /^.*\[Cron\] Missed execution deadline .*\n/gm,
  /^.*\[Nest\].*LockUnavailableError(?:.*\n)(?:(?!.*\[Nest\]).*\n)*/gm,
];

/** A process that runs a built example. */
export class ExampleProcess {
  readonly lines: string[] = [];
  readonly #child: ChildProcess;
  readonly #ended: Promise<number | NodeJS.Signals | null>;
  #stderr = '';

  constructor(folder: string, env: Readonly<Record<string, string>> = {}) {
    const { PATH } = process.env;
    this.#child = spawn(process.execPath, ['dist/main.js'], { cwd: folder, env: { PATH, ...env } });
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#read(text));
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.#stderr += text));
    this.#ended = new Promise((done) => this.#child.once('close', (code, signal) => done(code ?? signal)));
    cleanUpAfterTests(async () => {
      this.#child.kill('SIGKILL');
      await this.#ended;
    });
  }

  get #errors(): string {
    return LATE.reduce((text, pattern) => text.replace(pattern, ''), this.#stderr);
  }

  /** Resolves when `count` lines that match have been printed; rejects when the process ends earlier. */
  async printed(pattern: RegExp, count = 1): Promise<void> {
    await until(() => {
      if (this.#child.exitCode !== null) throw new Error(`the example has ended: ${this.#errors}`);
      return this.matching(pattern).length >= count;
    }, 120_000);
  }

  matching(pattern: RegExp): string[] {
    return this.lines.filter((line) => pattern.test(line));
  }

  /** Waits until the process ends by itself. Rejects unless it ends with code 0 and without warnings. */
  async end(): Promise<void> {
    const outcome = await this.#ended;
    if (outcome !== 0 || this.#errors !== '') throw new Error(`ended with ${outcome}: ${this.#errors}`);
  }

  /** Ends the process as Ctrl-C does. After the shutdown hooks, Nest ends it with the same signal. */
  async interrupt(): Promise<void> {
    this.#child.kill('SIGINT');
    const outcome = await this.#ended;
    if (outcome !== 'SIGINT' || this.#errors !== '')
      throw new Error(`ended with ${outcome}: ${this.#errors}`);
  }

  #rest = '';

  #read(text: string): void {
    const lines = `${this.#rest}${text}`.split('\n');
    this.#rest = lines.pop() ?? '';
    this.lines.push(...lines);
  }
}
