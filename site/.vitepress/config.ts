import { copyFileSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join, posix } from 'node:path';
import { defineConfig, type PageData } from 'vitepress';
import { anchorOf } from '../anchors.js';
import { linkToPages } from '../links.js';
import { addressOf, foldersWithoutPages, ROOT } from '../pages.js';
import { sidebar } from '../sidebar.js';

const { name, description } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  readonly name: string;
  readonly description: string;
};

/** The description of a page: its first paragraph, cut to the 160 characters that a search engine shows. */
function descriptionOf(file: string): string {
  const [, ...blocks] = readFileSync(join(ROOT, file), 'utf8').split(/\n{2,}/);
  const paragraph = blocks.find((block) => /^[\p{L}\p{N}`*[]/u.test(block)) ?? description;
  const text = paragraph
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replaceAll(/[`*\\]/g, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
  return text.length <= 160 ? text : `${text.slice(0, 157).replace(/\s\S*$/, '')}...`;
}

function describe(page: PageData): Partial<PageData> {
  if (page.filePath === 'README.md')
    return { title: `${name}: distributed locks for NestJS`, titleTemplate: ':title', description };
  if (page.filePath === 'CHANGELOG.md')
    return { description: `What each version of ${name} changes for its users` };
  if (page.filePath.startsWith('docs/api/'))
    return { description: `API reference of ${name}: ${page.title}` };
  const title = page.filePath.startsWith('examples/') ? `Example: ${page.title}` : page.title;
  return { title, description: descriptionOf(page.filePath) };
}

/** Shows the files of an example below its README. */
function withSources(page: string, id: string): string {
  const example = posix.dirname(posix.relative(ROOT, id));
  const files = readdirSync(join(ROOT, example, 'src')).map((file) => `src/${file}`);
  const shown = files.map(
    (file) => `### \`${file}\`\n\n\`\`\`ts\n${readFileSync(join(ROOT, example, file), 'utf8')}\`\`\`\n`,
  );
  return [page, '## Files\n', ...shown].join('\n');
}

export default defineConfig({
  title: name,
  description,
  titleTemplate: `:title | ${name}`,
  lang: 'en',
  // Name an empty icon: without it, a browser would ask for /favicon.ico.
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  srcDir: '..',
  srcExclude: foldersWithoutPages().map((folder) => `${folder}/**`),
  outDir: '../dist/site',
  cacheDir: '../dist/site-cache',
  rewrites: (file) => addressOf(file) ?? file,
  transformPageData: describe,
  markdown: {
    anchor: { slugify: anchorOf },
    image: { lazyLoading: true },
    config: linkToPages,
  },
  vite: {
    plugins: [
      {
        name: 'sources-of-examples',
        enforce: 'pre',
        transform: (code, id) =>
          /\/examples\/[\w-]+\/README\.md$/.test(id) ? withSources(code, id) : undefined,
      },
    ],
  },
  buildEnd({ outDir }) {
    for (const file of readdirSync(join(ROOT, 'docs')).filter((each) => each.endsWith('.json')))
      copyFileSync(join(ROOT, 'docs', file), join(outDir, basename(file)));
  },
  themeConfig: {
    nav: [
      { text: 'Start', link: '/getting-started' },
      { text: 'All pages', link: '/contents' },
      { text: 'API', link: '/api/' },
    ],
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: 'local', options: { detailedView: true } },
  },
});
