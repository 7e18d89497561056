import { describe } from '@jest/globals';
import { EXCLUSIVE } from '../../lib/core/lock-mode.js';
import { hasMysql } from '../support/mysql-server.js';
import { lockContract } from './lock-contract.js';
import { mysqlBackend } from './mysql-backend.js';

// The slow tests run all of the contract.
(hasMysql() ? describe : describe.skip)('on a real MariaDB', () => {
  lockContract('MariaDB', () => mysqlBackend(), EXCLUSIVE, { quick: true });
});
