import { test } from '@jest/globals';
import { MikroORM } from '@mikro-orm/mysql';
import { hasMysql } from '../support/mysql-server.js';
import { mariadbShop } from './lost-update.js';
import { mikroOrmContract } from './mikro-orm-contract.js';

if (hasMysql()) mikroOrmContract((options) => MikroORM.init(options), mariadbShop);
else test.todo('a lock and transactions of MikroORM on MariaDB');
