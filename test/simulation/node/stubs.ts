/** Logs nothing. It also takes the place of classes of which no object is made. */
class Silent {
  log(): void {}
  warn(): void {}
  error(): void {}
  debug(): void {}
  verbose(): void {}
}

const decorate = () => (): void => undefined;

/** Replacements for packages that the simulated parts of the library import and hardly use. */
export const STUBS: Readonly<Record<string, unknown>> = {
  ioredis: { Redis: Silent, Cluster: Silent },
  '@nestjs/common': { Logger: Silent, Injectable: decorate, Inject: decorate },
  '@nestjs/core': {},
  'node:os': { hostname: () => 'host' },
};
