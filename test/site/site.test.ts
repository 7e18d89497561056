import { describe, expect, test } from '@jest/globals';
import { hrefOf } from '../../site/links.js';
import { assertComplete, groupsOf } from '../../site/sidebar.js';

describe('hrefOf', () => {
  test.each([
    ['docs/cron.md', 'errors.md#lock_held', '/errors.md#lock_held'],
    ['docs/cron.md', 'README.md#supported-versions', '/contents.md#supported-versions'],
    ['docs/cron.md', '../README.md', '/index.md'],
    ['docs/README.md', '../examples/cron/README.md', '/examples/cron.md'],
    ['docs/README.md', '../CHANGELOG.md', '/changelog.md'],
    ['README.md', 'docs/cron.md', '/cron.md'],
    ['examples/cron/README.md', '../../docs/cron.md', '/cron.md'],
    ['examples/cron/README.md', 'src/cleanup.ts', '#srccleanupts'],
    ['docs/observability.md', 'grafana-dashboard.json', '/grafana-dashboard.json'],
    ['docs/cron.md', '#details', '#details'],
    ['docs/cron.md', 'https://redis.io', 'https://redis.io'],
  ])('on the page %s, `hrefOf` converts the link %s into %s', (page, target, href) => {
    expect(hrefOf(page, target)).toBe(href);
  });

  test.each(['missing.md', '../lib/index.ts', '../test/docs.test.ts'])(
    '`hrefOf` throws for a link to %s, which is not in the site',
    (target) => {
      expect(() => hrefOf('docs/cron.md', target)).toThrow(`docs/cron.md links to ${target}`);
    },
  );
});

describe('the sidebar', () => {
  const index = `# Documentation

- [No group](module.md): this is no section

## Use

- [The \`service\`](service.md): lock a part
- To copy: [cron](../examples/cron/README.md), [queue](../examples/queue/README.md)
- The API: a line without a link

## Versions

A section that is no list.
`;

  test('the sidebar has the lists of docs/README.md, grouped by section', () => {
    expect(groupsOf(index)).toEqual([
      {
        text: 'Use',
        items: [
          { text: 'The service', link: '/service.md' },
          {
            text: 'To copy',
            collapsed: true,
            items: [
              { text: 'cron', link: '/examples/cron.md' },
              { text: 'queue', link: '/examples/queue.md' },
            ],
          },
        ],
      },
    ]);
  });

  test('the build of the sidebar fails when docs/README.md does not list a page of docs/', () => {
    const pages = ['docs/README.md', 'docs/service.md', 'docs/cron.md'];
    expect(() => assertComplete(groupsOf(index), pages)).toThrow(/docs\/README\.md .* docs\/cron\.md\.$/);
    expect(() => assertComplete(groupsOf(index), pages.slice(0, 2))).not.toThrow();
  });
});
