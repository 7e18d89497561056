import { existsSync } from 'node:fs';
import { posix } from 'node:path';
import type { MarkdownRenderer } from 'vitepress';
import { anchorOf } from './anchors.js';
import { addressOf, ROOT } from './pages.js';

/** A file of an example, which the page of the example shows. */
const EXAMPLE_FILE = /^examples\/[\w-]+\/(src\/.*)$/;

/** A file that readers download. It becomes a file of the site with the same path. */
const DOWNLOAD = /^docs\/(.*\.json)$/;

/**
 * The address on the site of a link's target. The pages link to files, as on GitHub and in `node_modules`.
 *
 * @param page - the file of the page, relative to the repository
 * @throws Error if the site has no such page or file
 */
export function hrefOf(page: string, target: string): string {
  if (/^([a-z]+:|#)/.test(target)) return target;
  const [path = '', anchor] = target.split('#');
  const file = posix.join(posix.dirname(page), path);
  if (existsSync(posix.join(ROOT, file))) {
    const address = addressOf(file);
    if (address !== undefined) return `/${address}${anchor === undefined ? '' : `#${anchor}`}`;
    const source = EXAMPLE_FILE.exec(file)?.[1];
    if (source !== undefined) return `#${anchorOf(source)}`;
    const download = DOWNLOAD.exec(file)?.[1];
    if (download !== undefined) return `/${download}`;
  }
  throw new Error(`${page} links to ${target}: the site has neither a page nor a file ${file}.`);
}

/** Turns links between files into links between pages of the site. */
export function linkToPages(markdown: MarkdownRenderer): void {
  markdown.core.ruler.push('link-to-pages', ({ tokens, env }) => {
    const { path, realPath = path } = env as { readonly path: string; readonly realPath?: string };
    const page = posix.relative(ROOT, realPath);
    for (const token of tokens.flatMap(({ children }) => children ?? [])) {
      const target = token.type === 'link_open' ? token.attrGet('href') : null;
      if (target !== null) token.attrSet('href', hrefOf(page, target));
    }
  });
}
