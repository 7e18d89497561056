import { readdirSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { runCommand } from './run-command.js';

const ROOT = resolve(import.meta.dirname, '../..');

export interface PackedPackage {
  /** Path of the tarball. */
  readonly tarball: string;
  /** Paths inside it. */
  readonly files: readonly string[];
  /** Bytes to download. */
  readonly size: number;
  /** Bytes on disk when it is installed, without its peers; it has no other dependencies. */
  readonly installedSize: number;
}

/** Packs what `npm publish` would upload, from the build that is there, into `folder`. */
export async function packPackage(folder: string): Promise<PackedPackage> {
  assertBuilt();
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const [packed] = Object.values(JSON.parse(await runCommand('npm', args, { cwd: ROOT }))) as [
    { filename: string; files: { path: string }[]; size: number; unpackedSize: number },
  ];
  return {
    tarball: join(folder, packed.filename),
    files: packed.files.map((file) => file.path),
    size: packed.size,
    installedSize: packed.unpackedSize,
  };
}

/** The source files of the package, as paths inside `lib/` without the ending. */
export function sourceFiles(): string[] {
  return readdirSync(join(ROOT, 'lib'), { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => path.slice(0, -'.ts'.length));
}

/** The formats that a source file is built in. A command is run, not imported, so one is enough. */
export function formatsOf(source: string): readonly string[] {
  return isCommand(source) ? ['esm'] : ['esm', 'cjs'];
}

/** Files of the command, which has no types to offer. */
export function isCommand(source: string): boolean {
  return source.startsWith('cli/');
}

// A test of an old build would pass or fail for no reason that anybody can see.
function assertBuilt(): void {
  for (const source of sourceFiles()) {
    const changed = statSync(join(ROOT, 'lib', `${source}.ts`)).mtimeMs;
    for (const format of formatsOf(source)) {
      const built = statSync(join(ROOT, 'dist', format, `${source}.js`), { throwIfNoEntry: false });
      if (built === undefined || built.mtimeMs < changed) {
        throw new Error(
          `dist/${format}/${source}.js is older than lib/${source}.ts: run "npm run build:lib" first`,
        );
      }
    }
  }
}
