import config from './jest.config.mjs';

/** Measures which part of lib the tests run, into coverage/. Code in separate processes is not counted. */
/** @type {import('jest').Config} */
export default {
  ...config,
  collectCoverage: true,
  coverageProvider: 'v8',
  collectCoverageFrom: ['lib/**/*.ts'],
  coverageReporters: ['text-summary', 'lcov'],
  // These tests are left out: tests of the built package; tests of programs in separate processes; tests that run no
  // code of lib; tests that measure time.
  testPathIgnorePatterns: [
    '/node_modules/',
    '<rootDir>/test/(bench|consumers|examples|faults|lab|model|sample-app|support|types)/',
    '<rootDir>/test/(architecture|docs|install|programs|readme|workflows)(\\.slow)?\\.test\\.ts$',
  ],
};
