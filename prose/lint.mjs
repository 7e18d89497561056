// Lints the prose of the project: pages, comments, names of tests, and messages of the library.
//
// node prose/lint.mjs             all files
// node prose/lint.mjs PATH ...    these files, and all files below these folders
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { problemsOf } from './problems.mjs';

/** The files with prose, as patterns of Git. Git leaves out all that is built or installed. */
const FILES = [
  ...['CONTRIBUTING.md', 'README.md', 'SECURITY.md', 'bench/README.md', ':(glob)docs/*.md'],
  ...['*.ts', '*.tsx', '*.mjs', '*.css'],
];

function filesIn(paths) {
  const options = ['--cached', '--others', '--exclude-standard', '-z', '--'];
  return execFileSync('git', ['ls-files', ...options, ...paths], { encoding: 'utf8' })
    .split('\0')
    .filter((file) => file !== '' && existsSync(file));
}

const given = process.argv.slice(2);
const all = filesIn(FILES);
const files =
  given.length === 0
    ? all
    : given.flatMap((path) => {
        const below = all.filter((file) => file.startsWith(`${path.replace(/\/$/, '')}/`));
        return below.length > 0 ? below : [path];
      });
for (const file of new Set(files)) {
  for (const problem of await problemsOf(file, readFileSync(file, 'utf8'))) {
    console.log(problem);
    process.exitCode = 1;
  }
}
