import { replicated } from './scenarios/replicated.js';
import { playAll } from './suite.js';

playAll([['Clusters and Sentinels whose clients are passed in', replicated]]);
