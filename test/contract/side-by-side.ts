import * as jest from '@jest/globals';
import type { ContractRunner } from '../../lib/store/index.js';

const groups: string[] = [];

/**
 * Runs the tests of a contract suite of stores side by side: each test has keys of its own, and most tests only wait
 * for the end of a lock. Jest runs the tests of one group side by side, so the names of inner groups become parts of the
 * names of the tests.
 */
export const sideBySide: ContractRunner = {
  describe(name, body) {
    groups.push(name);
    if (groups.length === 1) jest.describe(name, body);
    else body();
    groups.pop();
  },
  test: (name, body, limit) => jest.test.concurrent([...groups.slice(1), name].join(': '), body, limit),
};
