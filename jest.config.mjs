/** All tests. `npm test` runs them without the slow ones: see jest.quick.config.mjs. */
/** @type {import('jest').Config} */
export default {
  testEnvironment: 'node',
  roots: ['<rootDir>/test'],
  testMatch: ['**/*.test.ts'],
  testSequencer: '<rootDir>/test/support/longest-first.mjs',
  // Most tests wait for servers and processes, so a worker needs about a third of a processor (five workers used 1.5 of two).
  maxWorkers: 6,
  // Number of tests of a file that run side by side (`test.concurrent`). They mostly wait for the end of a lock.
  maxConcurrency: 10,
  // A worker with a large heap needs more than Jest's 500 ms to end on a busy machine, although nothing is open any more.
  // After this limit in milliseconds Jest says that something is: a timer, a server. It does not say it of workers that
  // `workerIdleMemoryLimit` replaces.
  workerGracefulExitTimeout: 10_000,
  // Jest with ES modules keeps what each test file has loaded, about 10 MB, and a file takes up to 2 s more of a processor in
  // a worker with a large heap. So a worker that uses more than this after a test file is replaced.
  workerIdleMemoryLimit: '150MB',
  // Limit for a test that hangs. It is long, because a busy machine can make every test slow.
  testTimeout: 300_000,
  globalSetup: '<rootDir>/test/support/global-setup.mjs',
  setupFilesAfterEnv: ['<rootDir>/test/support/after-each-file.ts'],
  reporters: ['default', '<rootDir>/test/support/tally-reporter.mjs'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      {
        jsc: {
          parser: { syntax: 'typescript', decorators: true },
          transform: { legacyDecorator: true, decoratorMetadata: true },
          target: 'es2022',
        },
        module: { type: 'es6' },
      },
    ],
  },
  moduleNameMapper: {
    // One file in place of 200: each test file that imports Nest loads them again.
    '^rxjs$': '<rootDir>/node_modules/rxjs/dist/bundles/rxjs.umd.js',
    '^rxjs/operators$': '<rootDir>/test/support/rxjs-operators.cjs',
    '^nestjs-redlock$': '<rootDir>/lib/index.ts',
    '^nestjs-redlock/(.+)$': '<rootDir>/lib/$1/index.ts',
    '^(\\.{1,2}/.*)\\.js$': '$1',
  },
};
