import { readFileSync, rmSync } from 'node:fs';
import { posix } from 'node:path';
import { dts } from 'rollup-plugin-dts';

// Bundles the code that `npm run build:lib` has compiled into dist/lib, for publication in dist/esm and dist/cjs. The
// bundles are few, because opening a file takes longer than running its code: test/consumers/packed-package.slow.test.ts
// has the limits.

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
const PAGE = 'board/live/assets.js';

/** The program of the thread that renews locks. A file of its own, which `new Worker` loads. */
const THREAD = 'renewal-worker';

/**
 * The command-line program, which is run and not imported. So it needs only one format, and no types. It loads the code
 * of a command when that command runs.
 */
const COMMAND = 'cli/main';
const isOfCommand = (id) => posix.relative(posix.resolve('dist/lib'), id).startsWith('cli/');

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
  // The setup of all stores is here, too: it opens those of Redis, and a file of its own would take longer to open.
  redis: /^(stores\/redis|setup)\/(?!thread\/renewal-worker)/,
  // The code that the stores in databases have in common.
  database: /^stores\/database\//,
  // The SQL statements: the entry points `postgres` and `mysql` run them, and the command-line program prints them.
  sql: /^stores\/postgres\/(sql\/|schema)/,
  mysqlSql: /^stores\/mysql\/(sql\/|schema)/,
  // The code of `LockService`, which works without Nest.
  service: /^service\//,
  // The web page that shows the locks. The entry point `board` and the command-line program serve it.
  live: /^board\/live\//,
  nest: /^(decorator|module|http)\//,
};

function sharedFile(id) {
  const path = posix.relative(posix.resolve('dist/lib'), id);
  return Object.keys(SHARED).find((file) => SHARED[file].test(path));
}

/** Reads the source map beside a compiled file, so that the maps of the bundles lead to the sources in `lib/`. */
const sourceMaps = {
  name: 'source-maps',
  load(id) {
    if (!id.endsWith('.js')) return null;
    const map = JSON.parse(readFileSync(`${id}.map`, 'utf8'));
    return { code: readFileSync(id, 'utf8').replace(/\n\/\/# sourceMappingURL=.*\s*$/, '\n'), map };
  },
};

/** The files that only the folder of CommonJS has. */
const commonJsFiles = {
  name: 'common-js-files',
  generateBundle() {
    this.emitFile({ type: 'asset', fileName: 'package.json', source: '{"type":"commonjs"}\n' });
    const page = readFileSync(`dist/lib/${PAGE}`, 'utf8').replace('export const ASSETS', 'exports.ASSETS');
    this.emitFile({ type: 'asset', fileName: 'page.js', source: page });
  },
};

const EXPECTED = [
  // A TypeScript helper for decorators tests `this` at the top level of a module, and works without it.
  'THIS_IS_UNDEFINED',
  // A file with code but without exported types has an empty file of types.
  'EMPTY_BUNDLE',
  // rollup-plugin-dts warns of types that are not exported, although public types mention them.
  'PLUGIN_WARNING',
];

const isPage = (id) => posix.join('board/live', posix.basename(id)) === PAGE;

const common = {
  external: (id) => !/^[./]/.test(id) || isPage(id),
  onLog(level, log, handle) {
    if (!EXPECTED.includes(log.code)) handle(level === 'warn' ? 'error' : level, log);
  },
};

const output = (folder, ending, more) => ({
  dir: `dist/${folder}`,
  entryFileNames: `[name].${ending}`,
  chunkFileNames: ({ moduleIds }) => `${moduleIds.every(isOfCommand) ? 'cli/' : ''}[name].${ending}`,
  manualChunks: sharedFile,
  paths: (id) => (isPage(id) ? (folder === 'esm' ? '../cjs/page.js' : './page.js') : id),
  hoistTransitiveImports: false,
  minifyInternalExports: false,
  ...more,
});

/** The sources are in the package, too: the maps name them, and do not contain them once more. */
const maps = { sourcemap: true, sourcemapExcludeSources: true };

for (const folder of ['esm', 'cjs']) rmSync(`dist/${folder}`, { recursive: true, force: true });

export default [
  {
    ...common,
    input: {
      ...inputOf('js'),
      [COMMAND]: `dist/lib/${COMMAND}.js`,
      [THREAD]: `dist/lib/setup/thread/${THREAD}.js`,
    },
    plugins: [sourceMaps],
    output: output('esm', 'js', maps),
  },
  {
    ...common,
    input: { ...inputOf('js'), [THREAD]: `dist/lib/setup/thread/${THREAD}.js` },
    plugins: [sourceMaps, commonJsFiles],
    output: output('cjs', 'js', {
      ...maps,
      format: 'cjs',
      exports: 'named',
      // A test runner that loads CommonJS, such as Jest, refuses `import()`.
      dynamicImportInCjs: false,
      generatedCode: { constBindings: true },
    }),
  },
  {
    ...common,
    input: inputOf('d.ts'),
    plugins: [dts()],
    output: ['esm', 'cjs'].map((folder) => output(folder, 'd.ts')),
  },
];
