import { readFileSync } from 'node:fs';

/** Returns the parts of docs/testing.md for Vitest: the spec with Vitest in place of Jest, and the configuration for Vite 7. */
export function testingPage(): { readonly spec: string; readonly config: string } {
  const page = readFileSync('docs/testing.md', 'utf8');
  const [, spec = ''] = /```ts\n(.*?)```/s.exec(page) ?? [];
  const [, config = ''] = /```js\n(.*?)```/s.exec(page) ?? [];
  const forVitest = spec
    .replace("it, jest } from '@jest/globals'", "it, vi } from 'vitest'")
    .replaceAll('jest.', 'vi.');
  return { spec: forVitest, config };
}
