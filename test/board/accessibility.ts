import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import type { Page } from 'playwright-core';
import { everyView } from './scene.js';

const SCREENSHOTS = resolve('test-artefacts');
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

interface Violation {
  readonly id: string;
  readonly nodes: { readonly html: string; readonly failureSummary: string }[];
}

/**
 * Goes through each view of the page, writes a picture of it, and returns horizontal overflows and the accessibility
 * problems that axe finds.
 */
export async function problemsOf(page: Page, name: string): Promise<unknown[]> {
  const found: unknown[] = [];
  await mkdir(SCREENSHOTS, { recursive: true });
  // The security policy of the page does not apply to a script that the debugger evaluates.
  await page.evaluate(await readFile(AXE, 'utf8'));
  await everyView(page, async (shown) => {
    await page.screenshot({
      path: join(SCREENSHOTS, `board-${name.replaceAll(/\W+/g, '-')}-${shown}.png`),
    });
    const { violations } = (await page.evaluate('axe.run()')) as { violations: Violation[] };
    for (const { id, nodes } of violations)
      found.push({ shown, id, nodes: nodes.map(({ html, failureSummary }) => [html, failureSummary]) });
    const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
    if (Number(overflow) > 0) found.push({ shown, overflow });
  });
  return found;
}
