import { createServer } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { text } from 'node:stream/consumers';
import { freePort, LOOPBACK } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';

/** A request to the JSON gateway of etcd. */
export interface GatewayRequest {
  /** Path of the request below `/v3/`, such as `kv/txn`. */
  readonly path: string;
  readonly body: string;
  /** Sends the request to etcd, and resolves to the answer. */
  readonly pass: () => Promise<string>;
}

/**
 * Decides the answer to a request. A returned string is the answer. After `null` the client gets no answer, and after
 * `undefined` it gets the answer of etcd.
 */
export type Interception = (
  request: GatewayRequest,
) => Promise<string | null | undefined> | string | null | undefined;

/** A gateway in front of a real etcd. A test can answer in place of etcd. */
export interface FakeGateway {
  readonly host: string;
  readonly port: number;
  intercept: Interception | undefined;
  close(): void;
}

export async function startFakeGateway(server: { readonly url: string }): Promise<FakeGateway> {
  const gateway = createServer(async (request, response) => {
    const body = await text(request);
    const path = (request.url ?? '').slice('/v3/'.length);
    const ask = (): Promise<Response> => fetch(`${server.url}/v3/${path}`, { method: 'POST', body });
    if (path === 'watch') {
      const stream = await ask();
      response.writeHead(stream.status);
      return void pipeline(stream.body!, response).catch(() => undefined);
    }
    const answer = await fake.intercept?.({ path, body, pass: async () => (await ask()).text() });
    if (answer === null) return;
    if (answer !== undefined) return void response.writeHead(200).end(answer);
    const real = await ask();
    response.writeHead(real.status).end(await real.text());
  });
  const port = await freePort();
  await new Promise<void>((listening) => gateway.listen(port, LOOPBACK, listening));
  const close = (): void => {
    gateway.closeAllConnections();
    gateway.close();
  };
  cleanUpAfterTests(async () => close());
  const fake: FakeGateway = { host: LOOPBACK, port, intercept: undefined, close };
  return fake;
}
