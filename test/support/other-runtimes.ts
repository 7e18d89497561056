import { execFile } from 'node:child_process';
import { access, mkdir, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Other programs that run JavaScript. npm has a package with the program for each platform. */
const RUNTIMES = {
  Bun: { package: '@oven/bun-linux-x64', version: '1.4.5', program: 'bin/bun' },
  Deno: { package: '@deno/linux-x64-glibc', version: '2.9.6', program: 'deno' },
} as const;

export type OtherRuntime = keyof typeof RUNTIMES;

const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'nestjs-redlock', 'runtimes');

/**
 * Downloads a runtime into a cache, a hundred megabytes, so it is no development dependency. Returns the path of its
 * program, or `undefined` if it cannot be downloaded.
 */
export async function otherRuntime(name: OtherRuntime): Promise<string | undefined> {
  const { package: source, version, program } = RUNTIMES[name];
  const folder = join(CACHE, `${name}@${version}`);
  const path = join(folder, 'node_modules', source, program);
  try {
    await access(path);
  } catch {
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, 'package.json'), '{}');
    const quickly = ['--ignore-scripts', '--no-audit', '--no-fund', '--fetch-retries', '0'];
    const args = ['install', ...quickly, `${source}@${version}`];
    const failure = await promisify(execFile)('npm', args, { cwd: folder, timeout: 200_000 }).then(
      () => undefined,
      (error: Error) => error,
    );
    if (failure) {
      process.stdout.write(`${name} is skipped, because the download failed: ${failure.message}\n`);
      return undefined;
    }
  }
  return path;
}
