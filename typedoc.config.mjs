import { readFileSync } from 'node:fs';
import { posix } from 'node:path';

// `npm run docs:api` writes the API reference from the docstrings, a page for each entry point of the package, and
// fails when an export has none or names something that is not there.

const { exports } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'));
const entries = Object.keys(exports).filter((entry) => entry !== './package.json');

/** @type {Partial<import('typedoc').TypeDocOptions & import('typedoc-plugin-markdown').PluginOptions>} */
export default {
  plugin: ['typedoc-plugin-markdown'],
  entryPoints: entries.map((entry) => posix.join('lib', entry, 'index.ts')),
  tsconfig: 'lib/tsconfig.json',
  out: 'docs/api',
  name: 'API reference',
  readme: 'none',
  router: 'module',
  excludePrivate: true,
  excludeExternals: true,
  disableSources: true,
  hidePageHeader: true,
  hideBreadcrumbs: true,
  // Types that only appear in a signature need not be exported.
  validation: { notExported: false, invalidLink: true, invalidPath: true, notDocumented: true },
  // 'Function' would mean every method of every interface, too.
  requiredToBeDocumented: ['Class', 'Interface', 'TypeAlias', 'Variable'],
  treatValidationWarningsAsErrors: true,
};
