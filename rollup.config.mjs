import { readFileSync, rmSync } from 'node:fs';
import { posix } from 'node:path';
import { minify } from '@swc/core';
import { dts } from 'rollup-plugin-dts';

// Bundles the code that `nest build` has compiled into dist/lib, for publication in dist/esm and dist/cjs. The bundles
// are few, because opening a file takes longer than running its code: test/consumers/packed-package.test.ts has the
// limits.

const { exports } = JSON.parse(readFileSync('package.json', 'utf8'));
/** `.` is the file dist/lib/index and becomes index; `./fencing` is dist/lib/fencing/index and becomes fencing. */
const entries = Object.keys(exports).filter((entry) => entry !== './package.json');
const inputOf = (ending) =>
  Object.fromEntries(
    entries.map((entry) => [
      entry === '.' ? 'index' : entry.slice('./'.length),
      posix.join('dist/lib', entry, `index.${ending}`),
    ]),
  );
/**
 * The files of the web page that shows the locks (board/). The package contains them only once, as CommonJS, which ES
 * modules can load as well. Otherwise they would be most of the code that the package contains twice.
 */
const PAGE = 'live/assets.js';

/** The command-line program, which is run and not imported. So it needs only one format, and no types. */
const COMMAND = 'cli/main';

/**
 * The files with code that several entry points have in common, by the folders of the code; the first fitting pattern
 * counts. `base` is the code for entry points that must load neither Nest nor ioredis: OpenTelemetry instruments only
 * packages that are loaded after it.
 *
 * The files have a middle size, because the package has most text twice, as an ES module and as CommonJS, and gzip
 * finds repeated text only within 32 KiB. With only one file for Redis and one for Nest, the package is 22 KiB larger.
 */
const SHARED = {
  base: /^(core|telemetry|stores\/memory)\//,
  redlock: /^redlock\//,
  // The scripts of Redis, with the code that packs their arguments and reads their answers.
  scripts: /^stores\/redis\/(scripts\/|record|lock-key|lease-names)/,
  redis: /^stores\/redis\//,
  // The SQL statements: the entry point `postgres` runs them, and the command-line program prints them.
  sql: /^stores\/postgres\/(sql\/|schema)/,
  service: /^(service|decorator)\//,
  // The web page that shows the locks. The entry point `board` and the command-line program serve it.
  live: /^live\//,
  nest: /^(module|http)\//,
};

function sharedFile(id) {
  const path = posix.relative(posix.resolve('dist/lib'), id);
  return Object.keys(SHARED).find((file) => SHARED[file].test(path));
}

/** Removes comments and shortens the names of local variables; names that errors and stack traces show stay. */
function small() {
  const keep = { keep_classnames: true, keep_fnames: true };
  return {
    name: 'small',
    async renderChunk(code, { name }) {
      const minified = await minify(code, {
        module: true,
        ecma: 2022,
        compress: { ...keep, passes: 2, sequences: 0 },
        mangle: { ...keep, keep_private_props: true },
      });
      // Remove comments and indentation from Lua scripts and SQL. No other strings in these files have several lines.
      const dense =
        name === 'scripts' || name === 'sql'
          ? minified.code.replaceAll(/\n(?:[\n ]|--.*)+/g, '\n')
          : minified.code;
      const short = shortFields(dense, this.parse(dense));
      return inLines(short, this.parse(short));
    },
  };
}

/** Shortens the names of private fields, which nobody sees. Private functions keep their names for stack traces. */
function shortFields(code, tree) {
  const names = [];
  const fields = new Set();
  const others = new Set();
  const visit = (node) => {
    if (node.type === 'PrivateIdentifier') names.push(node);
    if (/^(Property|Method)Definition$/.test(node.type) && node.key.type === 'PrivateIdentifier')
      (/Function/.test(node.value?.type) ? others : fields).add(node.key.name);
    for (const child of Object.values(node).flat()) if (typeof child?.type === 'string') visit(child);
  };
  visit(tree);
  const shortened = [...fields].filter((name) => !others.has(name));
  let end = 0;
  const parts = [];
  for (const { name, start, end: after } of names.sort((a, b) => a.start - b.start)) {
    if (!shortened.includes(name)) continue;
    parts.push(code.slice(end, start), `#_${shortened.indexOf(name).toString(36)}`);
    end = after;
  }
  return [...parts, code.slice(end)].join('');
}

/**
 * Puts each top-level statement and each member of a class on its own line: for an uncaught error, Node prints the
 * whole line that threw it.
 */
function inLines(code, tree) {
  const ends = [];
  const visit = (node) => {
    for (const child of Object.values(node).flat()) {
      if (typeof child?.type !== 'string') continue;
      visit(child);
      if (node.type === 'Program' || node.type === 'ClassBody') ends.push(child.end);
    }
  };
  visit(tree);
  return [0, ...ends.sort((a, b) => a - b)]
    .map((end, index, all) => code.slice(end, all[index + 1]))
    .join('\n');
}

/**
 * Turns the imports and exports into those of CommonJS. Rollup can do that, but writes `base.LockHeldError` where the
 * ES module has `LockHeldError`, and gzip would then find less repeated text.
 */
function commonJs() {
  const renamed = (from, to) => (from.name === to.name ? from.name : `${from.name}:${to.name}`);
  return {
    name: 'common-js',
    renderChunk(code) {
      const parts = [];
      const exported = [];
      let end = 0;
      for (const node of this.parse(code).body) {
        if (!/^(Import|Export)/.test(node.type)) continue;
        const imported = [];
        for (const specifier of node.specifiers) {
          if (specifier.type === 'ImportSpecifier')
            imported.push(renamed(specifier.imported, specifier.local));
          else if (specifier.type !== 'ExportSpecifier') this.error(`${specifier.type} is not provided for`);
          else if (!node.source) exported.push(renamed(specifier.exported, specifier.local));
          else {
            imported.push(renamed(specifier.local, specifier.exported));
            exported.push(specifier.exported.name);
          }
        }
        parts.push(code.slice(end, node.start));
        if (imported.length > 0) parts.push(`const{${imported}}=`);
        if (node.source) parts.push(`require(${node.source.raw});`);
        end = node.end;
      }
      return [...parts, code.slice(end), `module.exports={${exported}};\n`].join('');
    },
    generateBundle(_, bundle) {
      delete bundle[`${COMMAND}.js`];
      this.emitFile({ type: 'asset', fileName: 'package.json', source: '{"type":"commonjs"}\n' });
      const page = readFileSync(`dist/lib/${PAGE}`, 'utf8').replace('export const ASSETS', 'exports.ASSETS');
      this.emitFile({ type: 'asset', fileName: 'page.js', source: page });
    },
  };
}

const EXPECTED = [
  // A TypeScript helper for decorators tests `this` at the top level of a module, and works without it.
  'THIS_IS_UNDEFINED',
  // A file with code but without exported types has an empty file of types.
  'EMPTY_BUNDLE',
  // rollup-plugin-dts warns of types that are not exported, although public types mention them.
  'PLUGIN_WARNING',
];

const isPage = (id) => posix.join('live', posix.basename(id)) === PAGE;

const common = {
  external: (id) => !/^[./]/.test(id) || isPage(id),
  onLog(level, log, handle) {
    if (!EXPECTED.includes(log.code)) handle(level === 'warn' ? 'error' : level, log);
  },
};

const output = (format, ending, plugins) => ({
  dir: `dist/${format}`,
  entryFileNames: `[name].${ending}`,
  chunkFileNames: `[name].${ending}`,
  manualChunks: sharedFile,
  paths: (id) => (isPage(id) ? (format === 'esm' ? '../cjs/page.js' : './page.js') : id),
  hoistTransitiveImports: false,
  minifyInternalExports: false,
  plugins,
});

for (const format of ['esm', 'cjs']) rmSync(`dist/${format}`, { recursive: true, force: true });

export default [
  {
    ...common,
    input: { ...inputOf('js'), [COMMAND]: `dist/lib/${COMMAND}.js` },
    output: [output('esm', 'js', [small()]), output('cjs', 'js', [small(), commonJs()])],
  },
  {
    ...common,
    input: inputOf('d.ts'),
    plugins: [dts()],
    output: ['esm', 'cjs'].map((each) => output(each, 'd.ts')),
  },
];
