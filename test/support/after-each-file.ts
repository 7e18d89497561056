import { afterAll } from '@jest/globals';
import { cleanUpLeftovers } from './leftovers.js';

// Loaded into every test file by jest.config.mjs (setupFilesAfterEnv).
afterAll(cleanUpLeftovers);
