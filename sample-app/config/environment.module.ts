import { type DynamicModule, Global, Module } from '@nestjs/common';
import { ENVIRONMENT, type Environment } from './environment.js';

/** Makes the configuration injectable everywhere. */
@Global()
@Module({})
export class EnvironmentModule {
  static register(environment: Environment): DynamicModule {
    return {
      module: EnvironmentModule,
      providers: [{ provide: ENVIRONMENT, useValue: environment }],
      exports: [ENVIRONMENT],
    };
  }
}
