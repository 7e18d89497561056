// `npm run typecheck` compiles this file, and nothing runs it.
import * as jest from '@jest/globals';
import * as node from 'node:test';
import * as vitest from 'vitest';
import type { ContractRunner, LockStore, Store, WaitQueue } from 'nestjs-redlock/store';
import { expectTypeOf } from 'expect-type';

expectTypeOf(jest).toExtend<ContractRunner>();
expectTypeOf(vitest).toExtend<ContractRunner>();
expectTypeOf(node).toExtend<ContractRunner>();

// A store must implement `LockStore`; the other interfaces of a store are optional.
expectTypeOf<LockStore>().toExtend<Store>();
expectTypeOf<WaitQueue>().not.toExtend<Store>();
