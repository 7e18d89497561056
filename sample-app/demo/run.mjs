// `npm run demo`: builds quietly, then runs the compiled demo in this process, so that signals reach it directly
// and not a shell in between.
import { execSync } from 'node:child_process';

console.log('Building ...');
try {
  execSync('npm run build', { stdio: 'pipe' });
} catch (error) {
  console.error(`The build failed:\n${error.stdout}${error.stderr}`);
  process.exit(1);
}
await import('../../dist/sample-app/demo/main.js');
