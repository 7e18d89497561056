import config from './jest.config.mjs';

/** `npm test`: every test file except `*.slow.test.ts`, which only `npm run test:all` runs. */
/** @type {import('jest').Config} */
export default { ...config, testPathIgnorePatterns: ['/node_modules/', '\\.slow\\.test\\.ts$'] };
