// `npm run lab`: runs the compiled lab in this process, so that signals reach it directly and not a shell in between.
import { build } from '../build.mjs';

build();
await import('../../dist/sample-app/lab/main.js');
