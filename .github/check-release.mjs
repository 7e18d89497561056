import { readFileSync } from 'node:fs';

// `node .github/check-release.mjs v1.2.3`, in the root of the repository: fails unless this version can be released.

const [, , tag] = process.argv;
const { version, repository } = JSON.parse(readFileSync('package.json', 'utf8'));
const changelog = readFileSync('CHANGELOG.md', 'utf8');
const [, newest] = /^## (.*)$/m.exec(changelog) ?? [];

const complaints = [];
if (tag !== `v${version}`)
  complaints.push(`the tag is ${tag}, and package.json has ${version}: tag v${version}`);
if (newest?.replace(/\(\d{4}-\d{2}-\d{2}\)$/, 'DATE') !== `${version} DATE`)
  complaints.push(`CHANGELOG.md begins with "${newest}": write "${version} (YYYY-MM-DD)"`);
if (repository === undefined)
  complaints.push(
    'package.json has no `repository`: npm compares it with the provenance, see CONTRIBUTING.md',
  );

for (const complaint of complaints) console.error(complaint);
process.exitCode = complaints.length === 0 ? 0 : 1;
