import { debianServer } from './debian-servers.mjs';
import { mariadb, mariadbIn, mysqlIn, type MysqlProgram } from './mysql-server.js';

/** The MySQL of Debian's sid, which is downloaded into a cache. Prints the reason if there is none. */
export function debianMysql(): MysqlProgram[] {
  return downloaded('mysql@sid', mysqlIn);
}

/** The MariaDB of Debian 13, a later one than that of Debian 12. Prints the reason if there is none. */
export function laterMariadb(): MysqlProgram[] {
  const installed = mariadb();
  if (!installed) return [];
  return downloaded('mariadb@trixie', (bin) => mariadbIn(bin, 'MariaDB of Debian 13', installed));
}

function downloaded(name: string, programOf: (bin: string) => MysqlProgram): MysqlProgram[] {
  try {
    return [programOf(debianServer(name))];
  } catch (error) {
    process.stderr.write(`Skipped: no ${name} of Debian: ${(error as Error).message}.\n`);
    return [];
  }
}
