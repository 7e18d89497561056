// `npm run lab` runs the compiled lab in this process: signals reach the lab directly, not a shell in between.
import { build } from '../sample-app/build.mjs';

build({
  sources: ['lab'],
  scripts: ['build:lib', 'build:sample', 'build:lab'],
  last: 'dist/lab/page.html',
});
await import('../dist/lab/main.js');
