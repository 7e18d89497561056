import { inspectionContract } from './inspection-contract.js';
import { lockContract } from './lock-contract.js';
import { memoryBackend } from './memory-backend.js';

lockContract('memory', memoryBackend);
inspectionContract('memory', memoryBackend, { allModes: true });
