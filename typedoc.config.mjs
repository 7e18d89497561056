import { readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { Converter } from 'typedoc';

// `npm run docs:api` writes the API reference from the docstrings, with a page for each entry point of the package. It
// fails when an export has no docstring, or when a docstring names something that does not exist.

const { name: packageName, exports } = JSON.parse(
  readFileSync(new URL('package.json', import.meta.url), 'utf8'),
);
const entries = Object.keys(exports).filter((entry) => entry !== './package.json');

/** Names each page after what a user imports. TypeDoc would name it after its file, the main entry point "index". */
function nameAfterEntryPoints(/** @type {import('typedoc').Application} */ app) {
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project }) => {
    for (const module of project.children ?? []) {
      module.name = module.name === 'index' ? packageName : posix.join(packageName, module.name);
    }
  });
}

/** @type {Partial<import('typedoc').TypeDocOptions & import('typedoc-plugin-markdown').PluginOptions>} */
export default {
  plugin: ['typedoc-plugin-markdown', nameAfterEntryPoints],
  entryPoints: entries.map((entry) => posix.join('lib', entry, 'index.ts')),
  tsconfig: 'lib/tsconfig.json',
  out: 'docs/api',
  name: 'API reference',
  readme: 'none',
  router: 'module',
  flattenOutputFiles: true,
  pageTitleTemplates: { module: '{name}', member: '{name}' },
  excludePrivate: true,
  excludeExternals: true,
  disableSources: true,
  hidePageHeader: true,
  hideBreadcrumbs: true,
  // Writes the anchors that links use. Without them a link to `RedlockErrorCode` leads nowhere: its usual anchor
  // belongs to `RedlockError.code`, so the link has a number at the end.
  useHTMLAnchors: true,
  // Types that only appear in a signature need not be exported.
  validation: { notExported: false, invalidLink: true, invalidPath: true, notDocumented: true },
  // With 'Function' in this list, every method of every interface would need a docstring.
  requiredToBeDocumented: ['Class', 'Interface', 'TypeAlias', 'Variable'],
  treatValidationWarningsAsErrors: true,
};
