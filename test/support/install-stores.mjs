import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { canInstall, install } from './apt.mjs';

/** Folders with programs. Debian puts some servers into a folder that only the PATH of root contains. */
const FOLDERS = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin'];
const onPath = (program) => FOLDERS.some((folder) => existsSync(join(folder, program)));

/** Servers that some tests need besides Redis, with their Debian packages. Without a server its tests are skipped. */
const SERVERS = [
  {
    name: 'etcd',
    there: () => onPath('etcd') && onPath('etcdctl'),
    packages: ['etcd-server', 'etcd-client'],
  },
  { name: 'PgBouncer', there: () => onPath('pgbouncer'), packages: ['pgbouncer'] },
  // These packages have the programs, and neither a service nor the data folder of one, which takes time to make.
  {
    name: 'MariaDB',
    there: () => onPath('mariadbd') && onPath('mariadb'),
    packages: ['mariadb-server-core', 'mariadb-client-core'],
  },
  {
    name: 'ZooKeeper',
    there: () => onPath('java') && existsSync('/usr/share/java/zookeeper.jar'),
    packages: ['libzookeeper-java', 'default-jre-headless'],
  },
];

/** On GitHub a missing server is an error: there nobody would notice that its tests are skipped. */
const isRequired = process.env['GITHUB_ACTIONS'] === 'true';

function missing(line) {
  console.log(line);
  if (isRequired) process.exitCode = 1;
}

// `npm test` runs this file before Jest. It prints one line for each missing server.
for (const { name, packages } of SERVERS.filter((server) => !server.there())) {
  const command = `apt-get install ${packages.join(' ')}`;
  if (!canInstall()) {
    missing(`There is no ${name}; its tests are skipped. To run them: ${command}`);
    continue;
  }
  try {
    install(...packages);
    console.log(`There was no ${name}: installed ${packages.join(', ')} with apt-get.`);
  } catch (error) {
    missing(`There is no ${name}, and "${command}" failed (${error.message}); its tests are skipped.`);
  }
}
