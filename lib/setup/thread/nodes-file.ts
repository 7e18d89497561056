import { isAbsolute } from 'node:path';
import { pathToFileURL } from 'node:url';
import { badOption } from '../../core/checks.js';

/**
 * The `file:` URL of the option `threadNodes`.
 *
 * @throws TypeError for anything but a `file:` URL or an absolute path
 */
export function fileOf(threadNodes: unknown): string {
  const text = threadNodes instanceof URL ? threadNodes.href : threadNodes;
  if (typeof text === 'string') {
    if (isAbsolute(text)) return pathToFileURL(text).href;
    if (text.startsWith('file:') && URL.canParse(text)) return text;
  }
  throw badOption(
    'threadNodes',
    "a `file:` URL such as `new URL('./lock-nodes.js', import.meta.url)`, or an absolute path such as `join(__dirname, " +
      "'lock-nodes.js')`",
    threadNodes,
  );
}
