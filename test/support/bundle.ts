import { transform } from '@swc/core';
import { build, type Plugin } from 'esbuild';
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, relative, resolve } from 'node:path';
import { cleanUpAfterTests } from './leftovers.js';

/** The repository. */
const ROOT = resolve(import.meta.dirname, '../..');

/** A change to a source file, for one bundle. */
export interface Patch {
  readonly file: string;
  /** What must be there exactly once: a patch that changes nothing would be taken for one that does no harm. */
  readonly find: string;
  readonly replace: string;
}

/** Packages that Nest looks for and does without. */
const OPTIONAL = ['@nestjs/microservices', '@nestjs/websockets', 'class-transformer', 'class-validator'];

/**
 * Makes one file of each program, with the library and all packages that it imports, in a directory of its own that is removed
 * after the test file. A process starts four times as fast from it: Node spends most of a start on opening several hundred
 * files, and a fault test starts six processes.
 *
 * @param programs - such as `test/faults/worker.ts`, which becomes `worker.js`
 * @returns the directory
 */
export async function bundle(programs: readonly string[], patches: readonly Patch[] = []): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'bundle-'));
  cleanUpAfterTests(() => rm(directory, { recursive: true, force: true }));
  await writeFile(join(directory, 'package.json'), '{"type":"module"}\n');
  await symlink(join(ROOT, 'node_modules'), join(directory, 'node_modules'));
  const unused = new Set(patches);
  await build({
    absWorkingDir: ROOT,
    entryPoints: [...programs],
    outdir: directory,
    bundle: true,
    platform: 'node',
    format: 'esm',
    // Errors of the library tell their name, and Nest the names of classes.
    keepNames: true,
    // `pg` is loaded where locks are kept in PostgreSQL.
    external: [...OPTIONAL, 'pg'],
    // For CommonJS packages in an ES module.
    banner: {
      js: "import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);",
    },
    logLevel: 'silent',
    plugins: [compileWith(patches, unused)],
  });
  const [left] = unused;
  if (left) throw new Error(`${left.file}, which was to be changed, is not part of the bundle`);
  return directory;
}

/** The bundle of one program, which is a TypeScript file: gives the file to run. */
export async function bundled(program: string): Promise<string> {
  return join(await bundle([program]), `${basename(program, '.ts')}.js`);
}

/** Compiles as Jest does: esbuild writes no types of decorated parameters. */
function compileWith(patches: readonly Patch[], unused: Set<Patch>): Plugin {
  return {
    name: 'swc',
    setup({ onLoad, onResolve }) {
      // The sources, not what was built.
      onResolve({ filter: /^nestjs-redlock(\/|$)/ }, ({ path }) => ({
        path: join(path.replace('nestjs-redlock', join(ROOT, 'lib')), 'index.ts'),
      }));
      onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        const file = relative(ROOT, path);
        const ofFile = patches.filter((patch) => patch.file === file);
        for (const patch of ofFile) unused.delete(patch);
        const { code } = await transform(ofFile.reduce(applyPatch, await readFile(path, 'utf8')), {
          swcrc: false,
          jsc: {
            parser: { syntax: 'typescript', decorators: true },
            transform: { legacyDecorator: true, decoratorMetadata: true },
            target: 'es2022',
          },
        });
        return { contents: code, loader: 'js' };
      });
    },
  };
}

function applyPatch(text: string, { file, find, replace }: Patch): string {
  const parts = text.split(find);
  if (parts.length !== 2) {
    throw new Error(`expected exactly once in ${file}, found ${parts.length - 1} times: ${find}`);
  }
  return parts.join(replace);
}
