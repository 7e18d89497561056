import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { DefaultTheme } from 'vitepress';
import { hrefOf } from './links.js';
import { addressOf, pagesIn, ROOT } from './pages.js';

const INDEX = 'docs/README.md';

type Item = DefaultTheme.SidebarItem;

const linksOf = (text: string): Item[] =>
  [...text.matchAll(/\[([^\]]+)\]\(([^)\s]+)\)/g)].map(([, name = '', target = '']) => ({
    text: name.replaceAll('`', ''),
    // A link of the index to its own section has only an anchor. The sidebar is elsewhere, so its link also needs the
    // file.
    link: hrefOf(INDEX, target.startsWith('#') ? `README.md${target}` : target),
  }));

/**
 * An entry of the index is one page, or a name with several pages: `- [Page](page.md): about it` or `- Name:
 * [page](page.md)`.
 */
function itemOf(entry: string): Item[] {
  if (entry.startsWith('[')) return linksOf(entry).slice(0, 1);
  const items = linksOf(entry);
  return items.length === 0 ? [] : [{ text: entry.replace(/:.*/s, ''), items, collapsed: true }];
}

/** The groups of the sidebar: the sections of `docs/README.md` that are lists. */
export function groupsOf(index: string): Item[] {
  const [, ...sections] = index.split(/^## /m);
  return sections.flatMap((section) => {
    const [text = ''] = section.split('\n');
    const entries = section.split(/^- /m).slice(1);
    const items = entries.flatMap(itemOf);
    return items.length === 0 ? [] : [{ text, items }];
  });
}

function linked(items: readonly Item[]): string[] {
  return items.flatMap((item) => [item.link ?? '', ...linked(item.items ?? [])]);
}

/** @throws Error that names the pages of `docs/` which no list has: a reader would not find them. */
export function assertComplete(groups: readonly Item[], pages: readonly string[]): void {
  const listed = new Set(linked(groups).map((link) => link.replace(/#.*/, '')));
  const missing = pages.filter((page) => page !== INDEX && !listed.has(`/${addressOf(page)}`));
  if (missing.length > 0)
    throw new Error(`The lists of ${INDEX} are the sidebar of the site. Add to one: ${missing.join(', ')}.`);
}

/** The pages that `npm run docs:api` has written. */
function apiPages(): Item {
  const link = (name: string): string => hrefOf(INDEX, `api/${name}`);
  const names = pagesIn('docs/api').filter((name) => name !== 'README.md');
  const items = names.map((name) => ({
    text: name.replace(/\.md$/, '').replace('.Namespace.', '#').replaceAll('.', '/').replace('#', ': '),
    link: link(name),
  }));
  return { text: 'API', link: link('README.md'), items, collapsed: true };
}

export function sidebar(): Item[] {
  const groups = groupsOf(readFileSync(join(ROOT, INDEX), 'utf8'));
  assertComplete(
    groups,
    pagesIn('docs').map((name) => `docs/${name}`),
  );
  return [
    ...groups.map((group) =>
      group.text === 'Reference' ? { ...group, items: [...(group.items ?? []), apiPages()] } : group,
    ),
    {
      text: 'Project',
      items: [
        { text: 'Changelog', link: hrefOf('README.md', 'CHANGELOG.md') },
        { text: 'Contributing', link: hrefOf('README.md', 'CONTRIBUTING.md') },
        { text: 'Security', link: hrefOf('README.md', 'SECURITY.md') },
      ],
    },
  ];
}
