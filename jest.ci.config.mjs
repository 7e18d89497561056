import config from './jest.config.mjs';

/**
 * Tests that need a browser and take long: the site of the documentation, which takes a minute to build, the playground
 * of the lab, and the pictures of docs/board.md. The job `browser` of the workflow runs them.
 */
const LONG = ['site/.*', 'lab/playground', 'board/pictures'];

/** All tests, with those that need a browser: beside the others they take less time than after them. */
/** @type {import('jest').Config} */
export default {
  ...config,
  testMatch: ['**/*.test.ts', '**/*.browser.ts'],
  testPathIgnorePatterns: ['/node_modules/', `<rootDir>/test/(${LONG.join('|')})\\.browser\\.ts$`],
};
