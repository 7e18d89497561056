import { execFile } from 'node:child_process';

export interface CommandOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly timeout?: number;
}

/** Runs a command as a user of the package would, outside Jest and npm. Resolves to its stdout. */
export function runCommand(file: string, args: readonly string[], options: CommandOptions): Promise<string> {
  const { cwd, timeout = 500_000 } = options;
  const env = { ...cleanEnvironment(), ...options.env };
  return new Promise((resolve, reject) => {
    execFile(file, args, { cwd, env, timeout, maxBuffer: 50_000_000 }, (error, stdout, stderr) => {
      if (error === null) {
        resolve(stdout);
      } else {
        const ending = error.killed
          ? `was still running after ${timeout} ms`
          : `failed (${error.code ?? error.signal})`;
        reject(new Error(`${file} ${args.join(' ')} ${ending}\n${stdout}\n${stderr}`));
      }
    });
  });
}

/**
 * Returns the environment without the variables of Jest and `npm test`, such as NODE_ENV=test and the folder of this
 * project. The other npm_config_* variables stay, because they may name a registry or a cache of the machine.
 */
function cleanEnvironment(): NodeJS.ProcessEnv {
  const foreign = /^(NODE_ENV|NODE_OPTIONS|JEST_.*|npm_(?!config_).*|npm_config_local_prefix|INIT_CWD)$/;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !foreign.test(name)));
}
