import config from './jest.config.mjs';

/**
 * All tests, with those that need a browser: beside the others they take less time than after them. The site of the
 * documentation takes a minute to build, so the job `browser` of the workflow tests it.
 */
/** @type {import('jest').Config} */
export default {
  ...config,
  testMatch: ['**/*.test.ts', '**/*.browser.ts'],
  testPathIgnorePatterns: ['/node_modules/', '<rootDir>/test/site/.*\\.browser\\.ts$'],
};
