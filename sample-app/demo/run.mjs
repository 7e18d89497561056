// `npm run demo` runs the compiled demo in this process: signals reach the demo directly, not a shell in between.
import { build } from '../build.mjs';

build({ scripts: ['build:lib', 'build:sample'], last: 'dist/sample-app/main.js' });
await import('../../dist/sample-app/demo/main.js');
