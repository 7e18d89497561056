import { expect, test } from '@jest/globals';
import { execFileSync } from 'node:child_process';
import { commandFor } from '../../board/page/format.js';

/** Returns the arguments that bash makes of a copied command. */
function argumentsOf(command: string): string[] {
  const script = `npx() { printf '%s\\0' "$@"; }; ${command}`;
  const output = execFileSync('bash', ['-c', script], {
    encoding: 'utf8',
    env: { ...process.env, LC_ALL: 'C.UTF-8' },
  });
  return output.split('\0').slice(0, -1);
}

test.each([
  'order:1',
  '-rf',
  "it's",
  '$(touch pwned) `id` ; rm -rf / && echo',
  String.raw`back\slash '\'' "quoted" $HOME`,
  'two\nlines\tand a\rreturn',
  "escape \u001b[31m' ; id",
  'right-to-left \u202e\\evil\u2066',
  'Käse 🧀 *?[a-z]{1,2} ~ ! #',
  '',
])('bash passes the key %j of a copied command as one argument', (key) => {
  expect(argumentsOf(commandFor(key))).toEqual(['nestjs-redlock', 'inspect', key]);
});
