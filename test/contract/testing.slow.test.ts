import { TestNode } from '../../lib/testing/test-node.js';
import { lockContract } from './lock-contract.js';

lockContract('the node of nestjs-redlock/testing', () => {
  const node = new TestNode();
  return Promise.resolve({
    nodes: () => Promise.resolve([node]),
    countKeys: () => Promise.resolve(node.size),
    stop: () => Promise.resolve(node.dropAll()),
  });
});
