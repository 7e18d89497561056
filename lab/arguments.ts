import { parseArgs } from 'node:util';
import { isLockStore, LOCK_STORES, type LockStore } from '../sample-app/config/environment.js';
import { type Scenario, SCENARIOS } from './scenarios.js';

export interface LabArguments {
  /** Scenarios in the order of the command line; all scenarios if the command line names none. */
  readonly scenarios: readonly Scenario[];
  /** True to open the page in a browser, and to run until Ctrl-C. */
  readonly open: boolean;
  /** Port of the page; 0 for any free port. */
  readonly port: number;
  /** Path of the file to which the page is written after the runs. */
  readonly report: string;
  /** Store that the page selects first for the playground. */
  readonly store: LockStore | undefined;
}

export const USAGE = `npm run lab                 runs all scenarios
npm run lab -- 5 8          runs the scenarios 5 and 8
npm run lab -- --open       opens the page, to start scenarios there; ends with Ctrl-C
               --store ${LOCK_STORES.join('|')}  where the playground on the page keeps its locks
               --port 4170  where the page is served (0: any free port)
               --report lab-report.html  where the page is written to after the runs

${SCENARIOS.map(({ number, title }) => `${String(number).padStart(4)}  ${title}`).join('\n')}`;

/**
 * Reads the command line.
 *
 * @throws Error that says what is wrong, and lists the options
 */
export function readArguments(args: readonly string[]): LabArguments {
  const { values, positionals } = parse(args);
  const scenarios = positionals.map((given) => {
    const found = SCENARIOS.find(({ number }) => String(number) === given);
    if (!found) throw new Error(`There is no scenario "${given}".\n\n${USAGE}`);
    return found;
  });
  const { open, report, store } = values;
  const port = Number(values.port);
  if (!/^\d+$/.test(values.port) || port > 65_535) {
    throw new Error(`--port must be a whole number up to 65535, not "${values.port}".\n\n${USAGE}`);
  }
  if (store !== undefined && !isLockStore(store)) {
    throw new Error(`--store must be one of ${LOCK_STORES.join(', ')}, not "${store}".\n\n${USAGE}`);
  }
  if (store !== undefined && !open) {
    throw new Error(`--store is for the playground, which is on the page: add --open.\n\n${USAGE}`);
  }
  // With an open page, the user starts the scenarios there.
  return { scenarios: scenarios.length > 0 || open ? scenarios : SCENARIOS, open, port, report, store };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        open: { type: 'boolean', default: false },
        port: { type: 'string', default: '4170' },
        store: { type: 'string' },
        report: { type: 'string', default: 'lab-report.html' },
      },
    });
  } catch (error) {
    throw new Error(`${(error as Error).message}\n\n${USAGE}`, { cause: error });
  }
}
