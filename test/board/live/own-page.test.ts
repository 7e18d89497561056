import type { IncomingMessage } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { whyForeign, whyNotLoopback } from '../../../lib/board/live/own-page.js';
import { pageFor } from '../../../lib/board/live/page.js';
import { redacted } from '../../../lib/board/live/redacted.js';

function from(headers: IncomingMessage['headers']): IncomingMessage {
  return { headers, socket: { localPort: 4_000 } } as unknown as IncomingMessage;
}

describe('the loopback page accepts a request only if Host and Origin name the loopback address', () => {
  test.each([
    [{ host: '127.0.0.1:4000' }, 'accepted'],
    [{ host: 'localhost:4000', origin: 'http://localhost:4000' }, 'accepted'],
    [{ host: '[::1]:4000' }, 'accepted'],
    [{ host: 'localhost:4001' }, 'refused'],
    [{ host: 'rebound.example:4000' }, 'refused'],
    [{ host: 'rebound.example:4000', origin: 'http://rebound.example:4000' }, 'refused'],
    [{ host: '127.0.0.1:4000', origin: 'http://elsewhere.example' }, 'refused'],
    [{ host: '127.0.0.1:4000', origin: 'null' }, 'refused'],
    [{}, 'refused'],
  ])('a request for the loopback page with the headers %o is %s', (headers, outcome) => {
    expect(whyNotLoopback(from(headers)) === undefined ? 'accepted' : 'refused').toBe(outcome);
  });
});

describe('the board accepts a data request only from its own page', () => {
  test.each([
    [{ host: 'a.example' }, 'accepted'],
    [{ host: 'inner', 'sec-fetch-site': 'same-origin', origin: 'https://a.example' }, 'accepted'],
    [{ host: 'a.example', origin: 'https://a.example' }, 'accepted'],
    [{ host: 'a.example', 'sec-fetch-site': 'cross-site' }, 'refused'],
    [{ host: 'a.example', 'sec-fetch-site': 'same-site', origin: 'https://a.example' }, 'refused'],
    [{ host: 'a.example', 'sec-fetch-site': 'none' }, 'refused'],
    [{ host: 'a.example', origin: 'https://b.example' }, 'refused'],
    [{ host: 'a.example', origin: 'null' }, 'refused'],
    [{ ':authority': 'a.example', origin: 'https://a.example' }, 'accepted'],
    [{ ':authority': 'a.example', origin: 'https://b.example' }, 'refused'],
    [{ ':authority': 'a.example', origin: 'null' }, 'refused'],
    [{ origin: 'null' }, 'refused'],
    [{ origin: 'https://b.example' }, 'refused'],
  ])('a data request to the board with the headers %o is %s', (headers, outcome) => {
    expect(whyForeign(from(headers)) === undefined ? 'accepted' : 'refused').toBe(outcome);
  });
});

test.each([
  ['/locks', './locks/'],
  ['/shop/locks', './locks/'],
  ['/locks/', './'],
  ['/a"><script>', './ascript/'],
])('the board at the path %s loads its files from %s', (path, base) => {
  expect(pageFor(path)).toContain(`src="${base}board.js"`);
});

test('redacted() removes user names and passwords from the URLs in a message', () => {
  expect(redacted('connect redis://user:p%40ss@host:1, http://:secret@b')).toBe(
    'connect redis://host:1, http://b',
  );
});
