// What `npm run demo` and `npm run lab` run is compiled first, but only when something is newer than what is there: a lab
// or a demo that is under way starts more processes from those files, and must not find them half-written.
import { execSync } from 'node:child_process';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

const SOURCES = [
  'lib',
  'sample-app',
  'package.json',
  'package-lock.json',
  'tsconfig.json',
  'nest-cli.json',
  'rollup.config.mjs',
];
/** What the build writes last. */
const LAST = 'dist/sample-app/lab/page.html';

/** Builds quietly, in the folder of the project; ends this process when that fails. */
export function build() {
  if (isBuilt()) return;
  console.log('Building ...');
  try {
    execSync('npm run build', { stdio: 'pipe' });
  } catch (error) {
    console.error(`The build failed:\n${error.stdout}${error.stderr}`);
    process.exit(1);
  }
}

function isBuilt() {
  const built = statSync(LAST, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return SOURCES.flatMap(filesIn).every((file) => statSync(file).mtimeMs <= built);
}

/** Folders too: their time tells that a file was taken away. */
function filesIn(path) {
  if (!statSync(path).isDirectory()) return [path];
  return [path, ...readdirSync(path, { recursive: true }).map((name) => join(path, name))];
}
