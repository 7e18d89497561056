import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { cleanUpAfterTests } from '../support/leftovers.js';

/** Result of a search of every reachable state. */
export interface SearchResult {
  readonly states: number;
  /** The rule that can be broken; `undefined` when none can. */
  readonly broken: string | undefined;
}

export type SearchSettings = Readonly<Record<string, number>>;

/**
 * Compiles a search in C. A search visits some million states, which takes minutes in JavaScript.
 *
 * @throws Error if this machine has no C compiler, because a skipped search would look like a passed one
 */
export function compileSearch(program: string): (given: SearchSettings) => SearchResult {
  const directory = mkdtempSync(join(tmpdir(), 'model-'));
  cleanUpAfterTests(() => rm(directory, { recursive: true, force: true }));
  const source = resolve('test/model', `${program}.c`);
  const binary = join(directory, program);
  try {
    execFileSync('cc', ['-O2', '-o', binary, source], { stdio: 'pipe' });
  } catch (error) {
    throw new Error(`The model check ${program}.c needs a C compiler: install one as \`cc\`.`, {
      cause: error,
    });
  }
  return (given) => {
    const words = Object.entries(given).map(([name, value]) => `${name}=${value}`);
    const { stdout, stderr, status } = spawnSync(binary, words, { encoding: 'utf8', maxBuffer: 1 << 26 });
    const [line = ''] = stdout.split('\n', 1);
    const [, result, rule, states] = /^(COMPLETE|BROKEN) (?:(.+) \| )?(\d+) states/.exec(line) ?? [];
    if (!result || status === null || status > 1)
      throw new Error(`${program} ${words.join(' ')}: ${line}${stderr}`);
    return { states: Number(states), broken: rule };
  };
}
