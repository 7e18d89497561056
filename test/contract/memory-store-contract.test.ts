import { sideBySide } from './side-by-side.js';
import type { LockMode } from '../../lib/core/lock-mode.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { TestNode } from '../../lib/testing/test-node.js';
import { storeContract } from 'nestjs-redlock/store';

const modes: readonly LockMode[] = ['exclusive', 'shared', 'permits'];

const memory = new MemoryStore();
storeContract(sideBySide, 'memory', { modes, store: () => memory });

const node = new TestNode();
storeContract(sideBySide, 'the node of nestjs-redlock/testing', { modes, store: () => node });
