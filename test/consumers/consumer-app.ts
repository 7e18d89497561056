import { cp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runCommand } from './run-command.js';

/** Output of `src/main.ts` of a consumer. */
export interface Outcome {
  readonly package: string;
  readonly [part: string]: unknown;
}

/** A copy of one of the applications beside this file, with the packed package installed in it. */
export class ConsumerApp {
  private constructor(
    private readonly folder: string,
    private readonly redisUrl: string,
  ) {}

  static async install(
    name: string,
    tarball: string,
    parent: string,
    redisUrl: string,
  ): Promise<ConsumerApp> {
    const folder = join(parent, name);
    await cp(join(import.meta.dirname, name), folder, { recursive: true });
    await cp(tarball, join(folder, 'nestjs-redlock.tgz'));
    const app = new ConsumerApp(folder, redisUrl);
    // Users install the newest versions that fit, so there is no lock file. `--strict-peer-deps` refuses versions that do not
    // fit the peers of the package.
    await app.npm(
      'install',
      '--prefer-offline',
      '--no-audit',
      '--no-fund',
      '--no-package-lock',
      '--strict-peer-deps',
    );
    return app;
  }

  npm(...args: string[]): Promise<string> {
    return runCommand('npm', args, { cwd: this.folder, env: { REDIS_URL: this.redisUrl } });
  }

  write(path: string, text: string): Promise<void> {
    return writeFile(join(this.folder, path), text);
  }

  /** Runs the command of an installed package that `npx` runs, without the half second of a processor that npm needs itself. */
  npx(command: string, ...args: string[]): Promise<string> {
    return runCommand(join(this.folder, 'node_modules/.bin', command), args, { cwd: this.folder });
  }

  node(...args: string[]): Promise<string> {
    // The time limit finds an application that does not end: a socket or a timer of the package keeps it alive.
    return runCommand(process.execPath, args, {
      cwd: this.folder,
      env: { REDIS_URL: this.redisUrl },
      timeout: 120_000,
    });
  }

  /** Runs the built application; the last line that it prints is the outcome. */
  async run(...nodeOptions: string[]): Promise<Outcome> {
    const output = await this.node(...nodeOptions, 'dist/main.js');
    return JSON.parse(output.trim().split('\n').at(-1) ?? '') as Outcome;
  }
}
