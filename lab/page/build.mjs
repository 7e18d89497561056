// Makes the page as one HTML file. Styles, script and the used parts of D3 are inside, so that the page loads nothing.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { build } from 'esbuild';

const here = new URL('.', import.meta.url);
const target = new URL('../../dist/lab/', here);

const { outputFiles } = await build({
  entryPoints: [new URL('main.ts', here).pathname],
  bundle: true,
  minify: true,
  write: false,
  format: 'iife',
  target: 'es2022',
  legalComments: 'inline',
});
const [template, ...styles] = await Promise.all(
  ['page.html', '../../board/timeline/timeline.css', 'style.css'].map((name) =>
    readFile(new URL(name, here), 'utf8'),
  ),
);
const script = outputFiles[0].text.replaceAll('</script', '<\\/script');
await mkdir(target, { recursive: true });
await writeFile(
  new URL('page.html', target),
  template.replace('/* style */', () => styles.join('')).replace('/* script */', () => script),
);
