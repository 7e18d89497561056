import config from './jest.config.mjs';

/**
 * Tests that need a browser and take long. These are the site of the documentation, which takes a minute to build, the
 * playground of the lab, the pictures of docs/board.md, and axe with three of the five views of the board. The job `browser`
 * of the workflow runs them.
 */
const LONG = ['site/.*', 'lab/playground', 'board/pictures', 'board/accessibility'];

/** All tests, with those that need a browser: beside the others they take less time than after them. */
/** @type {import('jest').Config} */
export default {
  ...config,
  testMatch: ['**/*.test.ts', '**/*.browser.ts'],
  testPathIgnorePatterns: ['/node_modules/', `<rootDir>/test/(${LONG.join('|')})\\.browser\\.ts$`],
};
