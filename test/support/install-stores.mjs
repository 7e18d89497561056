import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { canInstall, install } from './apt.mjs';

/** Debian puts some of them where only root looks. */
const FOLDERS = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin'];
const onPath = (program) => FOLDERS.some((folder) => existsSync(join(folder, program)));

/** Servers that the tests of further stores start, each with Debian's package. Without one its tests are skipped. */
const SERVERS = [
  {
    name: 'etcd',
    there: () => onPath('etcd') && onPath('etcdctl'),
    packages: ['etcd-server', 'etcd-client'],
  },
  { name: 'PgBouncer', there: () => onPath('pgbouncer'), packages: ['pgbouncer'] },
];

// Run by `npm test` before Jest: says in a line for each server that is missing what was done about it.
for (const { name, packages } of SERVERS.filter((server) => !server.there())) {
  const command = `apt-get install ${packages.join(' ')}`;
  if (!canInstall()) {
    console.log(`There is no ${name}; its tests are skipped. To run them: ${command}`);
    continue;
  }
  try {
    install(...packages);
    console.log(`There was no ${name}: installed ${packages.join(', ')} with apt-get.`);
  } catch (error) {
    console.log(`There is no ${name}, and "${command}" failed (${error.message}); its tests are skipped.`);
  }
}
