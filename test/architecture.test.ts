import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';

// "Imports point inwards" is stated by the linter's configuration. A pattern that matches nothing looks
// just like code that keeps the rule, so this shows, on files made for it, what the linter refuses.
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'architecture-'));
  await cp('.oxlintrc.json', join(folder, '.oxlintrc.json'));
});

afterEach(() => rm(folder, { recursive: true, force: true }));

async function lint(files: Readonly<Record<string, string>>): Promise<string> {
  for (const [path, source] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), source);
  }
  const oxlint = resolve('node_modules/.bin/oxlint');
  return new Promise((done) => {
    execFile(oxlint, ['--deny-warnings', 'lib'], { cwd: folder }, (_error, stdout) => done(stdout));
  });
}

function importing(specifier: string): string {
  return `import { thing } from '${specifier}';\n\nexport const mine = thing;\n`;
}

describe('imports point inwards', () => {
  test.each([
    ['lib/redlock/quorum.ts', '@nestjs/common'],
    ['lib/redlock/quorum.ts', 'ioredis'],
    ['lib/redlock/quorum.ts', 'rxjs'],
    ['lib/redlock/quorum.ts', '../lock.service.js'],
    ['lib/redlock/quorum.ts', '../ioredis/ioredis-node.js'],
    ['lib/ioredis/connection.ts', '@nestjs/common'],
    ['lib/ioredis/connection.ts', '../redlock.options.js'],
    ['lib/ioredis/connection.ts', '../memory/memory-node.js'],
    ['lib/memory/memory-node.ts', 'ioredis'],
    ['lib/memory/memory-node.ts', '../ioredis/scripts.js'],
    ['lib/memory/memory-node.ts', '../locker.js'],
    ['lib/fencing/fenced-register.ts', 'pg'],
    ['lib/fencing/fenced-register.ts', '@nestjs/common'],
    ['lib/fencing/fenced-register.ts', '../lock.service.js'],
    ['lib/testing/test-locks.ts', '@nestjs/testing'],
    ['lib/testing/test-locks.ts', '../ioredis/connection.js'],
    ['lib/cli/main.ts', '@nestjs/common'],
    ['lib/cli/main.ts', '../lock.service.js'],
    ['lib/index.ts', './cli/main.js'],
    // An entry point of its own: who does not use it loads nothing.
    ['lib/index.ts', './fencing/index.js'],
    ['lib/index.ts', './fencing/stale-token.error.js'],
    ['lib/index.ts', './testing/index.js'],
    ['lib/health/redlock.health-indicator.ts', '../ioredis/ioredis-node.js'],
    ['lib/index.ts', './health/index.js'],
    ['lib/metrics/collect-lock-metrics.ts', '@nestjs/common'],
    ['lib/metrics/collect-lock-metrics.ts', '../locker.js'],
    ['lib/tracing/redlock-instrumentation.ts', '@opentelemetry/instrumentation'],
    ['lib/index.ts', './metrics/index.js'],
    ['lib/index.ts', './tracing/index.js'],
  ])('%s may not import %s', async (path, specifier) => {
    await expect(lint({ [path]: importing(specifier) })).resolves.toContain('Imports point inwards');
  });

  test.each([
    ['lib/redlock/quorum.ts', './errors.js'],
    ['lib/redlock/quorum.ts', 'node:crypto'],
    ['lib/redlock/quorum.ts', 'node:timers/promises'],
    ['lib/ioredis/connection.ts', 'ioredis'],
    ['lib/ioredis/connection.ts', '../redlock/lock-node.js'],
    ['lib/memory/memory-node.ts', '../redlock/lock-node.js'],
    ['lib/fencing/stale-token.error.ts', '../redlock/errors.js'],
    ['lib/health/redlock.health-indicator.ts', '@nestjs/terminus'],
    ['lib/metrics/collect-lock-metrics.ts', 'prom-client'],
    ['lib/tracing/redlock-instrumentation.ts', '@opentelemetry/api'],
    ['lib/testing/redlock-testing.module.ts', '@nestjs/common'],
    ['lib/testing/redlock-testing.module.ts', '../redlock.module.js'],
    ['lib/testing/test-node.ts', '../memory/memory-node.js'],
    ['lib/cli/main.ts', '../ioredis/connection.js'],
    ['lib/cli/main.ts', 'ioredis'],
    ['lib/lock.service.ts', '@nestjs/common'],
    ['lib/lock.service.ts', './redlock/errors.js'],
  ])('%s may import %s', async (path, specifier) => {
    await expect(lint({ [path]: importing(specifier) })).resolves.toContain('Found 0 warnings and 0 errors');
  });

  test('types count as well: they are part of what a file knows', async () => {
    const source = "import type { Redis } from 'ioredis';\n\nexport type Client = Redis;\n";
    await expect(lint({ 'lib/redlock/claim.ts': source })).resolves.toContain('Imports point inwards');
  });

  test('no cycles', async () => {
    const files = {
      'lib/a.ts': "import { b } from './b.js';\n\nexport const a = () => b();\n",
      'lib/b.ts': "import { a } from './a.js';\n\nexport const b = () => a();\n",
    };
    await expect(lint(files)).resolves.toContain('import(no-cycle)');
  });
});
