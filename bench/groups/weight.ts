import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Contender } from '../contenders/contender.js';
import { interleaved, once, type Runner } from '../measure/rounds.js';
import { installPeers, ROOT } from '../peers.js';
import { type Group, times } from './group.js';

/** Folder of an application with the packages that all compared libraries need. */
const APP = join(ROOT, 'bench', 'peers');
const BUILT_ON = ['reflect-metadata', '@nestjs/common', '@nestjs/core', 'rxjs', 'ioredis', 'redis'];
const OURS = 'nestjs-redlock';

/** Measures size and load time of a library. */
export const weight: Group = {
  name: 'weight',
  about: 'bytes to download and on disk, and the time to load, beside the packages that all libraries need',
  async run(plan) {
    installPeers();
    const libraries = plan.contenders.filter(({ name }) => name !== 'raw');
    const ours = join(APP, 'node_modules', OURS);
    unpackOurs(ours);
    try {
      const sizes = packedSizes(libraries.map(({ packages }) => packages[0] ?? ''));
      const rows = libraries.map(({ name, packages: [library = ''] }) => {
        const folders = broughtBy(library);
        const files = [...folders].flatMap(filesIn);
        const installed = files.reduce((sum, file) => sum + statSync(file).size, 0);
        const packed = sizes.get(library) ?? NaN;
        const figures = { packed: packed / 1024, installed: installed / 1024, files: files.length };
        return [name, once({ ...figures, others: folders.size - 1 })] as const;
      });
      return {
        tables: [
          {
            title: 'Size, KiB',
            rows: new Map(rows),
            columns: [
              { figure: 'packed', title: 'to download', digits: 1 },
              { figure: 'installed', title: 'on disk', digits: 0 },
              { figure: 'files', title: 'files', digits: 0 },
              { figure: 'others', title: 'other packages', digits: 0 },
            ],
            notes: [
              'To download: the tarball of the library. On disk: the library with its dependencies, without the packages that it',
              'leaves to the application, and without NestJS if the installed NestJS fits.',
            ],
          },
          {
            title: 'Time to load, ms',
            rows: await interleaved(libraries.flatMap(loaders), times(7, plan, 3)),
            columns: [{ figure: 'took', title: 'p50', digits: 1, ratio: true }],
            notes: [
              'Each package is loaded in its own process, after NestJS 11 and the Redis clients, in the same format. Where Node can',
              'require ECMAScript modules, `require` also loads our ECMAScript modules. Node then reads all of NestJS 11 to find',
              'the names that it exports. This happens once for all packages of ECMAScript modules. It does not happen with NestJS 12.',
            ],
          },
        ],
      };
    } finally {
      rmSync(ours, { recursive: true, force: true });
    }
  },
};

/** Unpacks the package that would be published, beside the other libraries. */
function unpackOurs(folder: string): void {
  if (!existsSync(join(ROOT, 'dist', 'esm', 'index.js'))) throw new Error('Run "npm run build:lib" first.');
  mkdirSync(folder, { recursive: true });
  const [tarball] = npmPack('--pack-destination', APP, ROOT);
  if (!tarball) throw new Error('npm has packed nothing');
  execFileSync('tar', ['-xzf', join(APP, tarball.filename), '-C', folder, '--strip-components=1']);
  rmSync(join(APP, tarball.filename));
}

/** Returns the sizes in bytes of the tarballs that npm makes of installed packages, by package name. */
function packedSizes(names: readonly string[]): ReadonlyMap<string, number> {
  const packed = npmPack('--dry-run', ...names.map((name) => join(APP, 'node_modules', name)));
  return new Map(packed.map(({ name, size }) => [name, size]));
}

function npmPack(...args: string[]): { name: string; filename: string; size: number }[] {
  const output = execFileSync('npm', ['pack', '--json', '--ignore-scripts', ...args], {
    cwd: APP,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return Object.values(JSON.parse(output) as object);
}

/**
 * Lists the folders of a package and of all its dependencies. Packages that the application already has do not count.
 */
function broughtBy(name: string): ReadonlySet<string> {
  const has = new Set(BUILT_ON.map((each) => join(APP, 'node_modules', each)));
  const folders = new Set([join(APP, 'node_modules', name)]);
  // The loop also visits elements that are added during the loop.
  for (const folder of folders) {
    const { dependencies = {} } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as {
      dependencies?: object;
    };
    for (const each of Object.keys(dependencies)) {
      const found = installedFor(folder, each);
      if (!has.has(found)) folders.add(found);
    }
  }
  return folders;
}

function installedFor(folder: string, name: string): string {
  const found = join(folder, 'node_modules', name);
  if (existsSync(found)) return found;
  if (folder === ROOT) throw new Error(`${name} is not installed`);
  return installedFor(dirname(folder), name);
}

/** Lists the files of a package, without the files of nested packages. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : filesIn(join(folder, entry.name));
    return [join(folder, entry.name)];
  });
}

/**
 * Loads a library with `require`, as a CommonJS application does. Our package is also loaded with `import`, and with a
 * `require` that cannot load ECMAScript modules.
 */
function loaders({ name, packages: [library = ''] }: Contender): readonly Runner[] {
  const requiring = (each: string): string => `require(${JSON.stringify(each)})`;
  const importing = (each: string): string => `await import(${JSON.stringify(each)})`;
  if (library !== OURS) return [loader(name, library, requiring)];
  return [
    loader(`${name}, import`, library, importing, '--input-type=module'),
    loader(`${name}, require`, library, requiring),
    loader(`${name}, require of CommonJS`, library, requiring, '--no-experimental-require-module'),
  ];
}

function loader(name: string, library: string, load: (name: string) => string, ...options: string[]): Runner {
  // Work that other packages have deferred to the next turn of the event loop must not count.
  const script = `${BUILT_ON.map((each) => `${load(each)};`).join('')}
    setImmediate(async () => {
      const begun = performance.now();
      ${load(library)};
      console.log(performance.now() - begun);
      process.exit();
    });`;
  return {
    name,
    run() {
      const output = execFileSync(process.execPath, [...options, '-e', script], {
        cwd: APP,
        encoding: 'utf8',
      });
      return Promise.resolve({ took: Number(output) });
    },
  };
}
