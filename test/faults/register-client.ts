import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import type { Access, RegisterReport } from './access.js';
import type { RegisterAnswer, RegisterRequest } from './register.js';

/** A connection to the register. Answers arrive in the order of the requests. */
export class RegisterClient {
  readonly #waiting: ((answer: RegisterAnswer) => void)[] = [];

  private constructor(private readonly socket: Socket) {
    createInterface({ input: socket }).on('line', (line) => {
      this.#waiting.shift()?.(JSON.parse(line) as RegisterAnswer);
    });
  }

  static async open(port: number): Promise<RegisterClient> {
    const socket = connect(port, '127.0.0.1').setNoDelay(true);
    await once(socket, 'connect');
    return new RegisterClient(socket);
  }

  /** Resolves to the value of the counter, or to `undefined` if the register has seen a higher token. */
  async read(key: string, access: Access): Promise<number | undefined> {
    const answer = (await this.#ask({ ask: 'read', key, access })) as { value?: number };
    return answer.value;
  }

  /** Resolves to true if the register accepted the write. */
  async write(key: string, access: Access, value: number): Promise<boolean> {
    const answer = (await this.#ask({ ask: 'write', key, access, value })) as { accepted: boolean };
    return answer.accepted;
  }

  async report(): Promise<RegisterReport> {
    return (await this.#ask({ ask: 'report' })) as RegisterReport;
  }

  close(): void {
    this.socket.destroy();
  }

  #ask(request: RegisterRequest): Promise<RegisterAnswer> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.socket.write(`${JSON.stringify(request)}\n`);
    });
  }
}
