import { readdirSync } from 'node:fs';
import { join } from 'node:path';

/** The repository: the program that builds the site runs there. */
export const ROOT = process.cwd();

/** The pages of the site, by their files. `docs/` is the root of the site. */
const ADDRESSES: readonly (readonly [file: RegExp, address: (name: string) => string])[] = [
  [/^README\.md$/, () => 'index.md'],
  [/^docs\/README\.md$/, () => 'contents.md'],
  [/^docs\/api\/README\.md$/, () => 'api/index.md'],
  [/^examples\/([\w-]+)\/README\.md$/, (name) => `examples/${name}.md`],
  [/^([\w-]+)\.md$/, (name) => `${name.toLowerCase()}.md`],
  [/^docs\/((?:api\/)?[\w.-]+\.md)$/, (name) => name],
];

/** The path on the site, with `.md`, of a file of the repository; undefined if it is no page. */
export function addressOf(file: string): string | undefined {
  for (const [pattern, address] of ADDRESSES) {
    const match = pattern.exec(file);
    if (match) return address(match[1] ?? '');
  }
  return undefined;
}

/** The folders that the site must exclude: VitePress reads every Markdown file that no pattern excludes. */
export function foldersWithoutPages(): string[] {
  return readdirSync(ROOT, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name !== 'docs' && entry.name !== 'examples')
    .map(({ name }) => name);
}

/** The Markdown files of a folder. */
export const pagesIn = (folder: string): string[] =>
  readdirSync(join(ROOT, folder)).filter((name) => name.endsWith('.md'));
