import type { IncomingMessage } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { whyForeign, whyNotLoopback } from '../../lib/live/own-page.js';
import { pageFor } from '../../lib/live/page.js';
import { redacted } from '../../lib/live/redacted.js';

function from(headers: IncomingMessage['headers']): IncomingMessage {
  return { headers, socket: { localPort: 4_000 } } as unknown as IncomingMessage;
}

describe('the loopback page answers a request only if Host and Origin name the loopback address', () => {
  test.each([
    [true, { host: '127.0.0.1:4000' }],
    [true, { host: 'localhost:4000', origin: 'http://localhost:4000' }],
    [true, { host: '[::1]:4000' }],
    [false, { host: 'localhost:4001' }],
    [false, { host: 'rebound.example:4000' }],
    [false, { host: 'rebound.example:4000', origin: 'http://rebound.example:4000' }],
    [false, { host: '127.0.0.1:4000', origin: 'http://elsewhere.example' }],
    [false, { host: '127.0.0.1:4000', origin: 'null' }],
    [false, {}],
  ])('the page answers: %s. The headers are %o', (answered, headers) => {
    expect(whyNotLoopback(from(headers)) === undefined).toBe(answered);
  });
});

describe('the board accepts a data request only from its own page', () => {
  test.each([
    [true, { host: 'a.example' }],
    [true, { host: 'inner', 'sec-fetch-site': 'same-origin', origin: 'https://a.example' }],
    [true, { host: 'a.example', origin: 'https://a.example' }],
    [false, { host: 'a.example', 'sec-fetch-site': 'cross-site' }],
    [false, { host: 'a.example', 'sec-fetch-site': 'same-site', origin: 'https://a.example' }],
    [false, { host: 'a.example', 'sec-fetch-site': 'none' }],
    [false, { host: 'a.example', origin: 'https://b.example' }],
    [false, { host: 'a.example', origin: 'null' }],
    [true, { ':authority': 'a.example', origin: 'https://a.example' }],
    [false, { ':authority': 'a.example', origin: 'https://b.example' }],
    [false, { ':authority': 'a.example', origin: 'null' }],
    [false, { origin: 'null' }],
    [false, { origin: 'https://b.example' }],
  ])('the board accepts: %s. The headers are %o', (own, headers) => {
    expect(whyForeign(from(headers)) === undefined).toBe(own);
  });
});

test.each([
  ['/locks', './locks/'],
  ['/shop/locks', './locks/'],
  ['/locks/', './'],
  ['/a"><script>', './ascript/'],
])('the page at %s refers to its files as %s', (path, base) => {
  expect(pageFor(path)).toContain(`src="${base}board.js"`);
});

test('redacted() removes passwords from the URLs in a message', () => {
  expect(redacted('connect redis://user:p%40ss@host:1, http://:secret@b')).toBe(
    'connect redis://host:1, http://b',
  );
});
