import { transform } from '@swc/core';
import { build, type Plugin } from 'esbuild';
import { createHash } from 'node:crypto';
import { access, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, join, relative, resolve } from 'node:path';
import { runFolder } from './run-folder.js';

/** Root folder of the repository. */
const ROOT = resolve(import.meta.dirname, '../..');

/** A change to a source file. Only one bundle contains this change. */
export interface Patch {
  readonly file: string;
  /** Text that the file must contain once. Otherwise a patch could change nothing, and its test prove nothing. */
  readonly find: string;
  readonly replace: string;
}

/** Packages that Nest loads only if they are installed. */
const OPTIONAL = ['@nestjs/microservices', '@nestjs/websockets', 'class-transformer', 'class-validator'];

/**
 * Bundles each program into one file, with the library and all packages that the program imports. The files are in a
 * directory that the test files of a run share. A process starts four times as fast from a bundle: Node spends most of a
 * start on opening several hundred files, and a fault test starts six processes.
 *
 * @param programs - paths such as `test/faults/worker.ts`, which becomes `worker.js`
 * @returns the directory
 */
export async function bundle(programs: readonly string[], patches: readonly Patch[] = []): Promise<string> {
  const name = createHash('sha256').update(JSON.stringify([programs, patches]));
  const finished = join(runFolder(), `bundle-${name.digest('hex').slice(0, 16)}`);
  if (await exists(finished)) return finished;
  const directory = await mkdtemp(`${finished}-`);
  await writeFile(join(directory, 'package.json'), '{"type":"module"}\n');
  await symlink(join(ROOT, 'node_modules'), join(directory, 'node_modules'));
  const unused = new Set(patches);
  await build({
    absWorkingDir: ROOT,
    entryPoints: programs.map((program) => ({ in: program, out: basename(program, '.ts') })),
    outdir: directory,
    bundle: true,
    platform: 'node',
    format: 'esm',
    // The library puts names of errors, and Nest puts names of classes, into messages.
    keepNames: true,
    // The library loads `pg` and `mysql2` only when locks are kept in a database.
    external: [...OPTIONAL, 'pg', 'mysql2', '@valkey/valkey-glide'],
    // CommonJS packages call `require`, which an ES module does not have.
    banner: {
      js: "import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);",
    },
    logLevel: 'silent',
    plugins: [compileWith(patches, unused)],
  });
  const [left] = unused;
  if (left) throw new Error(`${left.file} is not part of the bundle, so its patch changes nothing`);
  try {
    await rename(directory, finished);
  } catch (error) {
    // Another test file has made the same bundle meanwhile.
    if (!(await exists(finished))) throw error;
    await rm(directory, { recursive: true });
  }
  return finished;
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** Bundles one program, which is a TypeScript file. Returns the path of the file to run. */
export async function bundled(program: string): Promise<string> {
  return join(await bundle([program]), `${basename(program, '.ts')}.js`);
}

/** Compiles with the settings of Jest. esbuild alone would leave out the types of decorated parameters. */
function compileWith(patches: readonly Patch[], unused: Set<Patch>): Plugin {
  return {
    name: 'swc',
    setup({ onLoad, onResolve }) {
      // A bundle contains the sources of the library, not its build.
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
    throw new Error(
      `the text of a patch must be in ${file} exactly once, and is there ${parts.length - 1} times: ${find}`,
    );
  }
  return parts.join(replace);
}
