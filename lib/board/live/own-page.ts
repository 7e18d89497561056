import type { IncomingMessage } from 'node:http';

/** The header that the page sends with each request that changes something. A form of another page cannot send it. */
export const BOARD_HEADER = 'x-redlock-board';

/**
 * Returns the reason why a request for data does not come from the board's own page; `undefined` when it may come from
 * there. A browser sends `Sec-Fetch-Site` to servers with https or on loopback. It sends `Origin` with each POST, and
 * with each request to another site whose answer a script can read. So a request with neither header does not show data
 * to another site, and changes nothing.
 *
 * @see https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site
 */
export function whyForeign({ headers }: Pick<IncomingMessage, 'headers'>): string | undefined {
  // HTTP/2 has the pseudo-header `:authority` in place of `Host`.
  const { 'sec-fetch-site': site, origin, ':authority': authority, host = authority } = headers;
  if (site !== undefined) {
    return site === 'same-origin' ? undefined : 'This request comes from a page of another site.';
  }
  if (origin === undefined || (host !== undefined && hostOf(origin) === host)) return undefined;
  return 'This request comes from a page of another site. A proxy in front of this server must not change the header Host.';
}

/**
 * Checks a request as {@link whyForeign} does, for a server on the loopback interface. A page of another site can reach
 * such a server, too, when the site's host name resolves to the loopback address (DNS rebinding).
 */
export function whyNotLoopback(request: Pick<IncomingMessage, 'headers' | 'socket'>): string | undefined {
  const { headers, socket } = request;
  const { host = '', origin } = headers;
  const own = ['127.0.0.1', 'localhost', '[::1]'].map((name) => `${name}:${socket.localPort}`);
  if (!own.includes(host)) return 'This page is available only under the names 127.0.0.1 and localhost.';
  return origin === undefined || origin === `http://${host}`
    ? undefined
    : 'This request comes from a page of another site.';
}

function hostOf(origin: string): string | undefined {
  return URL.canParse(origin) ? new URL(origin).host : undefined;
}
