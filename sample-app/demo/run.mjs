// `npm run demo`: runs the compiled demo in this process, so that signals reach it directly and not a shell in between.
import { build } from '../build.mjs';

build({ scripts: ['build:lib', 'build:sample'], last: 'dist/sample-app/main.js' });
await import('../../dist/sample-app/demo/main.js');
