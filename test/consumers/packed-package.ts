import { readdirSync, readFileSync, statSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { runCommand } from './run-command.js';

const ROOT = resolve(import.meta.dirname, '../..');

export interface PackedPackage {
  /** Path of the tarball. */
  readonly tarball: string;
  /** Paths of the files in the tarball. */
  readonly files: readonly string[];
  /** Size of the tarball in bytes. */
  readonly size: number;
}

/** Packs the existing build into `folder`, as `npm publish` would. */
export async function packPackage(folder: string): Promise<PackedPackage> {
  assertBuilt();
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const [packed] = Object.values(JSON.parse(await runCommand('npm', args, { cwd: ROOT }))) as [
    { filename: string; files: { path: string }[]; size: number },
  ];
  return {
    tarball: join(folder, packed.filename),
    files: packed.files.map((file) => file.path),
    size: packed.size,
  };
}

/** Modules that a file of the package loads, directly or indirectly. */
export interface Loaded {
  /** Files of the package, with the file itself. */
  readonly files: readonly string[];
  /** Names of other packages. */
  readonly packages: readonly string[];
}

/** Finds the modules that an import (or require) of a built file or of its types loads. They have all imports at the top. */
export function loadedBy(file: string): Loaded {
  const files = new Set([resolve(ROOT, file)]);
  const packages = new Set<string>();
  // The loop over a set also visits the elements that it adds.
  for (const each of files) {
    for (const [, specifier = ''] of readFileSync(each, 'utf8').matchAll(
      /^(?:(?:import|export)\b[^'\n]*|(?:const \w+ = )?require\()'([^']+)'/gm,
    )) {
      const path = each.endsWith('.d.ts') ? specifier.replace(/\.js$/, '.d.ts') : specifier;
      if (path.startsWith('.')) files.add(resolve(dirname(each), path));
      else if (!isBuiltin(specifier)) packages.add(specifier);
    }
  }
  return { files: [...files], packages: [...packages].sort() };
}

// The tests of an old build would not test the current sources.
export function assertBuilt(): void {
  const built = statSync(join(ROOT, 'dist/cjs/index.js'), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  for (const source of readdirSync(join(ROOT, 'lib'), { recursive: true, encoding: 'utf8' })) {
    if (source.endsWith('.ts') && statSync(join(ROOT, 'lib', source)).mtimeMs > built) {
      throw new Error(`dist is older than lib/${source}: run "npm run build:lib" first`);
    }
  }
}
