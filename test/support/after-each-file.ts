import { afterAll } from '@jest/globals';
import { cleanUpLeftovers } from './leftovers.js';

// jest.config.mjs loads this file into every test file (setupFilesAfterEnv).
afterAll(cleanUpLeftovers);
