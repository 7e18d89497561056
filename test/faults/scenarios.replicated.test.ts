import { replicated } from './scenarios/replicated.js';
import { playAll } from './suite.js';

playAll([['clients of Clusters and Sentinels passed in by the application', replicated]]);
