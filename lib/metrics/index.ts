export { collectLockMetrics, type LockMetricsOptions } from './collect-lock-metrics.js';
