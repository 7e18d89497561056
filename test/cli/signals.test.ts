import { expect, test } from '@jest/globals';
import { InterruptedError, Signals } from '../../lib/cli/signals.js';

test('a signal that comes while the command starts reaches it, as do later ones', () => {
  const signals = new Signals();
  const forwarded: string[] = [];
  process.emit('SIGTERM', 'SIGTERM');
  signals.forwardTo((name) => forwarded.push(name));
  process.emit('SIGUSR2', 'SIGUSR2');
  signals.stop();
  expect(forwarded).toEqual(['SIGTERM', 'SIGUSR2']);
  expect(signals.ending.reason).toBeInstanceOf(InterruptedError);
});
