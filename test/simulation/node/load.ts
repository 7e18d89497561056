import * as asyncHooks from 'node:async_hooks';
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join, relative, resolve } from 'node:path';
import { compileFunction } from 'node:vm';
import { build, type Plugin } from 'esbuild';
import { Stage } from '../world/host.js';
import type { Random } from '../world/random.js';
import { globalsOf } from './globals.js';
import { STUBS } from './stubs.js';

type Modules = typeof import('./library.js');

/** Root folder of the repository. */
export const ROOT = resolve(process.env.SIMULATION_ROOT ?? '.');

/** A change to the text of a source file of the library: the error of a control. */
export interface Patch {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** The library with the clocks, timers and random numbers of the process that runs at present. */
export interface Library extends Modules {
  readonly stage: Stage;
  /**
   * Prepares the library for a new world, so that nothing of an earlier world has an effect.
   *
   * @param random - the source of the ids of leases
   */
  begin(random: Random): void;
}

/** The scripts of Redis nodes, and what takes their place. */
const SCRIPTS = 'lib/stores/redis/scripts/node-scripts.ts';
const SIMULATED_SCRIPTS = 'test/simulation/node/simulated-scripts.ts';

/** Bundles the library into one function, whose parameters are the globals that the library uses. */
export async function loadLibrary(patches: readonly Patch[] = []): Promise<Library> {
  const { outputFiles } = await build({
    absWorkingDir: ROOT,
    entryPoints: ['test/simulation/node/library.ts'],
    bundle: true,
    write: false,
    platform: 'node',
    format: 'cjs',
    target: 'es2022',
    packages: 'external',
    logLevel: 'silent',
    plugins: [patched(patches)],
  });
  return compiled(outputFiles.map(({ text }) => text).join('\n'));
}

function patched(patches: readonly Patch[]): Plugin {
  return {
    name: 'simulation',
    setup({ onLoad, onEnd }) {
      const unused = new Set(patches);
      // The bundler reads all other files itself, which is several times faster.
      const filter = new RegExp(`/(${[SCRIPTS, ...patches.map(({ file }) => file)].join('|')})$`);
      onLoad({ filter }, async ({ path }) => {
        const file = relative(ROOT, path);
        let text = await readFile(file === SCRIPTS ? join(ROOT, SIMULATED_SCRIPTS) : path, 'utf8');
        if (file === SCRIPTS)
          return { contents: text, loader: 'ts', resolveDir: join(ROOT, SIMULATED_SCRIPTS, '..') };
        for (const patch of patches) {
          if (patch.file !== file) continue;
          const parts = text.split(patch.find);
          if (parts.length !== 2)
            throw new Error(`${file} must have this text once, not ${parts.length - 1} times: ${patch.find}`);
          unused.delete(patch);
          text = parts.join(patch.replace);
        }
        return { contents: text, loader: 'ts' };
      });
      onEnd(() => {
        const [left] = unused;
        if (left) throw new Error(`${left.file} is not a part of the simulated library`);
      });
    },
  };
}

function compiled(text: string): Library {
  const stage = new Stage();
  const requireOf = createRequire(join(ROOT, 'package.json'));
  const storages: asyncHooks.AsyncLocalStorage<unknown>[] = [];
  // While a storage is in use, each promise costs more. So a world that has ended must not leave one in use.
  class Storage<T> extends asyncHooks.AsyncLocalStorage<T> {
    constructor() {
      super();
      storages.push(this);
    }
  }
  const globals = globalsOf(stage);
  /** The source of the ids of leases, and how often it was used. */
  const ids = { random: undefined as Random | undefined, fills: 0 };
  const builtins: Record<string, unknown> = {
    ...STUBS,
    ...globals.modules,
    'node:async_hooks': { ...asyncHooks, AsyncLocalStorage: Storage },
    'node:crypto': {
      createHash,
      randomBytes: (size: number) => {
        const bytes = Buffer.alloc(size);
        stage.host.random.fill(bytes);
        return bytes;
      },
      randomFillSync: (bytes: Buffer) => {
        ids.fills++;
        ids.random?.fill(bytes);
      },
    },
  };
  const load = (name: string): unknown => builtins[name] ?? requireOf(name);
  const module = { exports: {} };
  const names = Object.keys(globals.variables);
  const run = compileFunction(text, ['require', 'module', 'exports', ...names], {
    filename: 'simulated-library.js',
  });
  stage.run(globals.loading, () => run(load, module, module.exports, ...Object.values(globals.variables)));
  const exported = module.exports as Modules;
  return {
    ...exported,
    stage,
    begin(random) {
      for (const storage of storages) storage.disable();
      ids.random = random;
      // The library fetches random bytes for many ids at a time. Use up the bytes of the world before.
      const before = ids.fills;
      stage.read(globals.loading, () => {
        while (ids.fills === before) void new exported.Lease([], '', 0).id;
      });
    },
  };
}
