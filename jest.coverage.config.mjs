import config from './jest.config.mjs';

/** How much of lib the tests run, in coverage/. What runs in processes of its own is not counted. */
/** @type {import('jest').Config} */
export default {
  ...config,
  collectCoverage: true,
  coverageProvider: 'v8',
  collectCoverageFrom: ['lib/**/*.ts'],
  coverageReporters: ['text-summary', 'lcov'],
  // These run the built package, or programs in processes of their own, or nothing of lib; or they measure time.
  testPathIgnorePatterns: [
    '/node_modules/',
    '<rootDir>/test/(bench|consumers|examples|faults|lab|model|sample-app|support|types)/',
    '<rootDir>/test/(architecture|docs|install|programs|readme|workflows)\\.test\\.ts$',
  ],
};
