// Compiles the programs that `npm run demo` and other commands of this repository run, but only when a source is newer
// than the output. A program under way starts more processes from the output, and they must not find half-written
// files.
import { execSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

const COMMON = [
  'lib',
  'sample-app',
  'package.json',
  'package-lock.json',
  'tsconfig.json',
  'nest-cli.json',
  'rollup.config.mjs',
];

/**
 * Builds quietly, in the folder of the project; ends this process when that fails.
 *
 * @param {object} program
 * @param {readonly string[]} program.scripts - of package.json, that build it
 * @param {string} program.last - a file that the last of them writes, and only when it succeeds
 * @param {readonly string[]} [program.sources] - beside those of the library and the sample
 */
export function build({ scripts, last, sources = [] }) {
  const built = statSync(last, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if ([...COMMON, ...sources].flatMap(filesIn).every((file) => statSync(file).mtimeMs <= built)) return;
  console.log('Building ...');
  try {
    for (const script of scripts) execSync(`npm run ${script}`, { stdio: 'pipe' });
  } catch (error) {
    console.error(`The build failed:\n${error.stdout}${error.stderr}`);
    process.exit(1);
  }
}

/** Folders too: their time tells that a file was taken away. */
function filesIn(path) {
  if (!statSync(path).isDirectory()) return [path];
  return [path, ...readdirSync(path, { recursive: true }).map((name) => join(path, name))];
}
