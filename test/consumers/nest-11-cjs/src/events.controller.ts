import { Controller, Sse, type INestApplication, type MessageEvent } from '@nestjs/common';
import { LockService, WithLock } from 'nestjs-redlock';
import { of, Observable } from 'rxjs';

/** These options delay a refusal until Nest has sent the headers. Nest needs one turn of the event loop for that. */
const WAITING = { retry: { attempts: 2, delay: 100, jitter: 0, timeout: 30_000 } };

@Controller('events')
export class EventsController {
  @Sse('plain')
  @WithLock('events', WAITING)
  plain(): Observable<MessageEvent> {
    return of({ data: 'hello' });
  }

  @Sse('later')
  @WithLock('events', WAITING)
  async later(): Promise<Observable<MessageEvent>> {
    return of({ data: 'hello' });
  }
}

/** Returns the answers to requests whose lock is refused: the status, and the text if the status is not an error. */
export async function refusedEvents(app: INestApplication): Promise<Record<string, unknown>> {
  const lock = await app.get(LockService).acquire('events');
  const url = await app.getUrl();
  const told = async (path: string): Promise<unknown[]> => {
    const response = await fetch(`${url}/events/${path}`);
    const text = await response.text();
    return response.ok ? [response.status, text.trim()] : [response.status];
  };
  const answers = { plain: await told('plain'), later: await told('later') };
  await lock.release();
  return answers;
}
