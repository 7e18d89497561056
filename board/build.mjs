// Bundles the page of the board, and writes it into the compiled library. lib/board/live/assets.ts says why the page is a
// part of the code.
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync } from 'node:zlib';
import { build } from 'esbuild';

const path = (file) => fileURLToPath(new URL(file, import.meta.url));

const { outputFiles } = await build({
  entryPoints: { board: path('page/main.tsx') },
  bundle: true,
  minify: true,
  write: false,
  outdir: 'board',
  format: 'iife',
  target: 'es2023',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'inline',
});
const { outputFiles: styles } = await build({
  stdin: {
    contents: '@import "./timeline/timeline.css"; @import "./page/style.css";',
    loader: 'css',
    resolveDir: path('.'),
  },
  bundle: true,
  minify: true,
  write: false,
});

const TYPES = { 'board.js': 'text/javascript; charset=utf-8', 'board.css': 'text/css; charset=utf-8' };
const contents = { 'board.js': outputFiles[0].contents, 'board.css': styles[0].contents };
const assets = Object.fromEntries(
  Object.entries(contents).map(([name, content]) => {
    // Node compresses with the best quality by default.
    const brotli = brotliCompressSync(content);
    // docs/board.md has these numbers.
    console.log(`${name}: ${content.length} bytes, ${brotli.length} with Brotli`);
    const hash = createHash('sha256').update(content).digest('base64url').slice(0, 16);
    return [name, { type: TYPES[name], brotli: brotli.toString('base64'), hash }];
  }),
);
await writeFile(
  path('../dist/lib/board/live/assets.js'),
  `export const ASSETS = ${JSON.stringify(assets)};\n`,
);
