export { RedlockInstrumentation, type RedlockInstrumentationConfig } from './redlock-instrumentation.js';
