import { readFileSync } from 'node:fs';
import { posix } from 'node:path';
import { Converter } from 'typedoc';

// `npm run docs:api` writes the API reference from the docstrings, a page for each entry point of the package, and
// fails when an export has none or names something that is not there.

const { name: packageName, exports } = JSON.parse(
  readFileSync(new URL('package.json', import.meta.url), 'utf8'),
);
const entries = Object.keys(exports).filter((entry) => entry !== './package.json');

/** Calls each page by what a user imports: TypeDoc goes by the files, and would call the main entry point "index". */
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
  // The anchors that the links go by: `RedlockError.code` takes the one of the heading `RedlockErrorCode`.
  useHTMLAnchors: true,
  // Types that only appear in a signature need not be exported.
  validation: { notExported: false, invalidLink: true, invalidPath: true, notDocumented: true },
  // 'Function' would mean every method of every interface, too.
  requiredToBeDocumented: ['Class', 'Interface', 'TypeAlias', 'Variable'],
  treatValidationWarningsAsErrors: true,
};
