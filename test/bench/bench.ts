import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runCommand } from '../consumers/run-command.js';
import { compile } from './compile.js';

/** The compiled benchmark. It runs as `npm run bench -- ...` does. */
export class Bench {
  private constructor(
    private readonly compiled: string,
    private readonly out: string,
  ) {}

  static async compile(): Promise<Bench> {
    const compiled = await compile(['lib', 'test/support', 'sample-app/demo', 'bench']);
    return new Bench(compiled, await mkdtemp(join(tmpdir(), 'bench-')));
  }

  /** Runs the benchmark, and resolves to its output. */
  run(...args: string[]): Promise<string> {
    const main = join(this.compiled, 'bench', 'main.js');
    const all = ['--expose-gc', main, ...args, '--out', this.out];
    const env = { BENCH_NODE_TIMEOUT: '60000' };
    return runCommand(process.execPath, all, { cwd: process.cwd(), env });
  }

  file(name: string): Promise<string> {
    return readFile(join(this.out, name), 'utf8');
  }

  /**
   * Returns a function that finds the median of a figure in one table of a group, by default the first table. `name` is
   * the name of a row, such as `ours` or `raw`.
   */
  async medians(group: string, title?: string): Promise<(name: string, figure: string) => number> {
    const { results } = JSON.parse(await this.file('results.json')) as {
      results: Record<
        string,
        { tables: { title: string; rows: Record<string, Record<string, { median: number }>> }[] }
      >;
    };
    const tables = results[group]?.tables;
    const rows = (title === undefined ? tables?.[0] : tables?.find((table) => table.title === title))?.rows;
    return (name, figure) => rows?.[name]?.[figure]?.median ?? NaN;
  }

  async remove(): Promise<void> {
    for (const folder of [this.compiled, this.out]) await rm(folder, { recursive: true, force: true });
  }
}
