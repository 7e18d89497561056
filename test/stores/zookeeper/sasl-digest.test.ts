import { createHash } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { SaslDigest } from '../../../lib/stores/zookeeper/client/sasl-digest.js';

const CHALLENGE = 'realm="zk-sasl-md5",nonce="a\\"b",charset=utf-8,algorithm=md5-sess';

const hash = (data: string | Buffer): Buffer => createHash('md5').update(data).digest();
const hex = (data: string | Buffer): string => hash(data).toString('hex');

/** The proof of RFC 2831 that a server with this password computes from the client's answer. */
function proofOf(answer: string, password: string, request: string): string {
  const cnonce = /cnonce="([^"]*)"/.exec(answer)?.[1] ?? '';
  const secret = Buffer.concat([hash(`me:zk-sasl-md5:${password}`), Buffer.from(`:a"b:${cnonce}`)]);
  return hex(`${hex(secret)}:a"b:00000001:${cnonce}:auth:${hex(request)}`);
}

test('the answer proves the password, and only a server with the same password proves itself', () => {
  const exchange = new SaslDigest('me', 'secret');
  const answer = exchange.answer(CHALLENGE);
  expect(answer).toContain('username="me",realm="zk-sasl-md5",nonce="a\\"b"');
  const response = proofOf(answer, 'secret', 'AUTHENTICATE:zookeeper/zk-sasl-md5');
  expect(answer).toContain(`response=${response}`);
  expect(answer).not.toContain('secret');
  expect(exchange.isProof(`rspauth=${proofOf(answer, 'secret', ':zookeeper/zk-sasl-md5')}`)).toBe(true);
  expect(exchange.isProof(`rspauth=${proofOf(answer, 'wrong', ':zookeeper/zk-sasl-md5')}`)).toBe(false);
  expect(exchange.isProof('')).toBe(false);
});

test('each login has a nonce of its own', () => {
  const [one, other] = [new SaslDigest('me', 'secret'), new SaslDigest('me', 'secret')];
  expect(one.answer(CHALLENGE)).not.toBe(other.answer(CHALLENGE));
});

test.each(['', 'realm="zk"', 'nonce="n",qop="auth-conf"'])(
  'a challenge of another kind is refused: %j',
  (challenge) => {
    expect(() => new SaslDigest('me', 'secret').answer(challenge)).toThrow(/no login by DIGEST-MD5/);
  },
);
