export {
  type RedlockHealth,
  RedlockHealthIndicator,
  type RedlockHealthOptions,
} from './redlock.health-indicator.js';
