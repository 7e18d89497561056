import type { IncomingMessage } from 'node:http';

/** The header that the page sends with each request that changes something: a form of another page cannot. */
export const BOARD_HEADER = 'x-redlock-board';

/**
 * Why a request for data is not one of the page's own; `undefined` when it may be. Browsers say where a request comes from:
 * in `Sec-Fetch-Site`, to servers with https and on loopback, and in `Origin`. What says neither is no browser, and has
 * nobody's cookies.
 *
 * @see https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site
 */
export function whyForeign({ headers }: Pick<IncomingMessage, 'headers'>): string | undefined {
  const { 'sec-fetch-site': site, origin, host } = headers;
  if (site !== undefined) {
    return site === 'same-origin' ? undefined : 'This request comes from a page of another site.';
  }
  if (origin === undefined || hostOf(origin) === host) return undefined;
  return 'This request comes from a page of another site. A proxy before this server must leave the header Host as it is.';
}

/**
 * The same for a server on the loopback interface, which other pages of the browser can reach: their host name can be made to
 * resolve to it (DNS rebinding).
 */
export function whyNotLoopback(request: Pick<IncomingMessage, 'headers' | 'socket'>): string | undefined {
  const { headers, socket } = request;
  const { host = '', origin } = headers;
  const own = ['127.0.0.1', 'localhost', '[::1]'].map((name) => `${name}:${socket.localPort}`);
  if (!own.includes(host)) return 'This page is on 127.0.0.1 and has no other name.';
  return origin === undefined || origin === `http://${host}`
    ? undefined
    : 'This request comes from a page of another site.';
}

function hostOf(origin: string): string | undefined {
  return URL.canParse(origin) ? new URL(origin).host : undefined;
}
