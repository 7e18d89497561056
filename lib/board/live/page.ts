/** The browser may load files only from this server, and runs no inline script. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'self'",
].join('; ');

/** The headers of every response. */
export const HEADERS = {
  'content-security-policy': POLICY,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
} as const;

/**
 * Returns the page. The links to its files are relative, because the server does not know under which path a proxy
 * offers it.
 *
 * @param path - the path of the request as this server receives it
 */
export function pageFor(path: string): string {
  const last = /[^/]*$/.exec(path)?.[0] ?? '';
  const base = last === '' ? './' : `./${last.replaceAll(/[^\w.~%-]/g, '')}/`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Locks</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${base}board.css">
<script src="${base}board.js" defer></script>
</head>
<body><noscript>This page shows locks as they change, which needs JavaScript.</noscript></body>
</html>
`;
}
