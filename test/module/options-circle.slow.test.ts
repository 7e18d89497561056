import 'reflect-metadata';
import { describe, expect, test } from '@jest/globals';
import { type DynamicModule, Injectable, Module } from '@nestjs/common';
import { once } from 'node:events';
import {
  Leader,
  type LeaderTerm,
  LockService,
  OnlyLeader,
  RedlockModule,
  WithLock,
} from '../../lib/index.js';
import { bundled } from '../support/bundle.js';
import { Instance } from '../support/instance.js';
import { startPlainApp } from '../support/nest-app.js';
import { until } from '../support/until.js';

@Injectable()
class Settings {
  leads = false;

  nodes(): 'memory' {
    return 'memory';
  }

  createRedlockOptions(): { nodes: 'memory' } {
    return { nodes: this.nodes() };
  }

  @WithLock('settings')
  async reload(): Promise<string> {
    return 'reloaded';
  }

  @Leader('settings')
  async lead({ signal }: LeaderTerm): Promise<void> {
    this.leads = true;
    await once(signal, 'abort');
  }

  @OnlyLeader('settings')
  async publish(): Promise<string | undefined> {
    return 'published';
  }
}

/** Needs the settings, and locks, too. */
@Injectable()
class Discovery {
  constructor(readonly settings: Settings) {}

  @WithLock('discovery')
  async find(): Promise<string> {
    return 'found';
  }
}

@Module({ providers: [Settings, Discovery], exports: [Settings, Discovery] })
class SettingsModule {}

describe('locked methods of what the options need', () => {
  test.each<[string, () => DynamicModule]>([
    [
      'a factory',
      () =>
        RedlockModule.forRootAsync({
          imports: [SettingsModule],
          inject: [Discovery],
          useFactory: ({ settings }: Discovery) => ({ nodes: settings.nodes() }),
        }),
    ],
    [
      'a class that exists',
      () => RedlockModule.forRootAsync({ imports: [SettingsModule], useExisting: Settings }),
    ],
  ])('the application starts when %s makes the options', async (_name, redlock) => {
    const app = await startPlainApp({ imports: [redlock()] });
    const settings = app.get(Settings, { strict: false });
    await expect(settings.reload()).resolves.toBe('reloaded');
    await expect(app.get(Discovery, { strict: false }).find()).resolves.toBe('found');
    await until(() => settings.leads);
    await expect(settings.publish()).resolves.toBe('published');
    await app.close();
  });

  test('the application starts when a class with locked methods makes the options', async () => {
    class Config {
      createRedlockOptions(): { nodes: 'memory' } {
        return { nodes: 'memory' };
      }

      @WithLock('config')
      async reload(): Promise<string> {
        return 'reloaded';
      }
    }
    const app = await startPlainApp({ imports: [RedlockModule.forRootAsync({ useClass: Config })] });
    await expect(app.get(Config, { strict: false }).reload()).resolves.toBe('reloaded');
    await app.close();
  });

  test('a factory of another provider may call a locked method before the options are there', async () => {
    let open!: () => void;
    const gate = new Promise<void>((resolve) => (open = resolve));
    class Early {
      @WithLock('early')
      async run(): Promise<string> {
        return 'ran';
      }
    }
    const begun: string[] = [];
    const started = startPlainApp({
      imports: [
        RedlockModule.forRootAsync({ useFactory: () => gate.then(() => ({ nodes: 'memory' as const })) }),
      ],
      providers: [
        Early,
        {
          provide: 'result',
          inject: [Early],
          useFactory: (early: Early) => {
            begun.push('called');
            return early.run();
          },
        },
      ],
    });
    await until(() => begun.length === 1);
    open();
    const app = await started;
    expect(app.get('result')).toBe('ran');
    await app.close();
  });

  test('LockService is there for the constructors of other providers', async () => {
    @Injectable()
    class Early {
      readonly closing: AbortSignal;
      constructor(locks: LockService) {
        this.closing = locks.closing;
      }
    }
    const app = await startPlainApp({
      imports: [RedlockModule.forRootAsync({ useFactory: async () => ({ nodes: 'memory' as const }) })],
      providers: [Early],
    });
    expect(app.get(Early).closing.aborted).toBe(false);
    await app.close();
  });
});

describe('options that wait for their own locks', () => {
  test.each(['service', 'method'])('the process ends with an error that says so (%s)', async (circle) => {
    const instance = new Instance(await bundled('test/fixtures/options-circle.ts'), { CIRCLE: circle });
    await until(() => instance.lines.length > 0);
    expect(instance.lines).toEqual([
      expect.stringMatching(/^LOCK_NOT_INJECTED RedlockModule has no options: /),
    ]);
  });
});
