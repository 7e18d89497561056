import { transformFile } from '@swc/core';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';

/** The repository; Jest runs there. */
const ROOT = resolve('.');

/** A change to a source file, for one compilation. */
export interface Patch {
  readonly file: string;
  /** What must be there exactly once: a patch that changes nothing would be taken for one that does no harm. */
  readonly find: string;
  readonly replace: string;
}

/**
 * Compiles folders of this repository into a new directory that plain Node can run, as Jest compiles them and in a
 * fraction of a second. Remove the directory after use.
 */
export async function compile(folders: readonly string[], patches: readonly Patch[] = []): Promise<string> {
  const target = await mkdtemp(join(tmpdir(), 'fault-tests-'));
  try {
    await writeFile(join(target, 'package.json'), '{"type":"module"}\n');
    await symlink(join(ROOT, 'node_modules'), join(target, 'node_modules'), 'dir');
    const sources = (await Promise.all(folders.map(sourcesIn))).flat();
    const unused = patches.find(({ file }) => !sources.includes(file));
    if (unused) throw new Error(`${unused.file}, which was to be changed, is not there`);
    // All of them settle before the directory is removed.
    const results = await Promise.allSettled(
      sources.map(async (source) => {
        const ofFile = patches.filter(({ file }) => file === source);
        const output = join(target, source.replace(/\.ts$/, '.js'));
        const { code } = await transformSource(source, ofFile, target);
        await mkdir(dirname(output), { recursive: true });
        await writeFile(output, code);
      }),
    );
    const failed = results.find((result) => result.status === 'rejected');
    if (failed) throw failed.reason;
    return target;
  } catch (error) {
    await rm(target, { recursive: true, force: true });
    throw error;
  }
}

async function sourcesIn(folder: string): Promise<string[]> {
  const entries = await readdir(join(ROOT, folder), { withFileTypes: true, recursive: true });
  return entries
    .filter(({ name }) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .filter(({ parentPath }) => !parentPath.includes('node_modules'))
    .map(({ parentPath, name }) => relative(ROOT, join(parentPath, name)));
}

async function transformSource(
  source: string,
  patches: readonly Patch[],
  target: string,
): Promise<{ code: string }> {
  let path = join(ROOT, source);
  if (patches.length > 0) {
    const text = patches.reduce(applyPatch, await readFile(path, 'utf8'));
    path = join(target, source);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
  return transformFile(path, {
    swcrc: false,
    jsc: {
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true },
      target: 'es2022',
    },
    module: { type: 'es6' },
    sourceMaps: 'inline',
  });
}

function applyPatch(text: string, { file, find, replace }: Patch): string {
  const parts = text.split(find);
  if (parts.length !== 2) {
    throw new Error(`expected exactly once in ${file}, found ${parts.length - 1} times: ${find}`);
  }
  return parts.join(replace);
}
