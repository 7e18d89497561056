import { transform } from '@swc/core';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { cleanUpAfterTests } from './leftovers.js';

const ROOT = resolve(import.meta.dirname, '../..');

/**
 * Compiles lib/ and one more file, and others that it imports, into a directory of its own, for a process that is not
 * Jest's; resolves to the compiled file. The directory is removed after the test file.
 */
export async function compiled(file: string, ...imported: string[]): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'nestjs-redlock-'));
  cleanUpAfterTests(() => rm(directory, { recursive: true, force: true }));
  // An import of the library by its name gets this compilation, not the build.
  const description = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as object;
  const exports = { '.': './lib/index.js', './*': './lib/*/index.js' };
  await writeFile(join(directory, 'package.json'), JSON.stringify({ ...description, exports }));
  await symlink(join(ROOT, 'node_modules'), join(directory, 'node_modules'));
  const library = (await readdir(join(ROOT, 'lib'), { recursive: true })).filter((name) =>
    name.endsWith('.ts'),
  );
  const files = [...library.map((name) => join('lib', name)), file, ...imported];
  await Promise.all(files.map((name) => compile(name, directory)));
  return inJavaScript(file, directory);
}

async function compile(file: string, directory: string): Promise<void> {
  const { code } = await transform(await readFile(join(ROOT, file), 'utf8'), {
    jsc: {
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true },
      target: 'es2022',
    },
  });
  const target = inJavaScript(file, directory);
  await mkdir(dirname(target), { recursive: true });
  await writeFile(target, code);
}

function inJavaScript(file: string, directory: string): string {
  return join(directory, file.replace(/\.ts$/, '.js'));
}
