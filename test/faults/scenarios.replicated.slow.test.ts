import { replicated } from './scenarios/replicated.js';
import { playFurther } from './suite.js';

playFurther([['clients of Clusters and Sentinels passed in by the application', replicated]]);
