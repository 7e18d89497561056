import config from './jest.config.mjs';

/** The tests that need a browser; `npm run test:all` does not run them, `npm run test:ci` runs the shorter ones. */
/** @type {import('jest').Config} */
export default { ...config, testMatch: ['**/*.browser.ts'] };
