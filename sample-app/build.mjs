// Compiles the programs of `npm run demo` and of other scripts, but only if a source is newer than the build. A running
// program starts more processes from the build, and must not find half-written files.
import { execSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

const COMMON = [
  'lib',
  'sample-app',
  'package.json',
  'package-lock.json',
  'tsconfig.json',
  'rollup.config.mjs',
];

/**
 * Builds without output, in the folder of the project. Ends this process when the build fails.
 *
 * @param {object} program
 * @param {readonly string[]} program.scripts - scripts of package.json that build the program
 * @param {string} program.last - file that the last script writes, only if it succeeds
 * @param {readonly string[]} [program.sources] - sources in addition to those of the library and the sample
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

/** Lists files and folders, because the removal of a file changes only the modification time of its folder. */
function filesIn(path) {
  if (!statSync(path).isDirectory()) return [path];
  return [path, ...readdirSync(path, { recursive: true }).map((name) => join(path, name))];
}
