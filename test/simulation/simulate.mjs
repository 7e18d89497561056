// Bundles the simulator, which is TypeScript, and runs it.
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';

const root = resolve(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'simulation-'));
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
process.env.SIMULATION_ROOT = root;
symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
writeFileSync(join(folder, 'package.json'), '{"type":"module"}\n');
const outfile = join(folder, 'main.js');
await build({
  absWorkingDir: root,
  entryPoints: ['test/simulation/main.ts'],
  outfile,
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'es2022',
  packages: 'external',
  logLevel: 'warning',
});
await import(pathToFileURL(outfile).href);
