import 'reflect-metadata';
import { ApolloDriver, type ApolloDriverConfig } from '@nestjs/apollo';
import { afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import {
  BadRequestException,
  type CallHandler,
  type CanActivate,
  type ExecutionContext,
  Injectable,
  type INestApplication,
  type NestInterceptor,
  type PipeTransform,
  Scope,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import {
  Args,
  Field,
  GqlExecutionContext,
  GraphQLModule,
  GraphQLSchemaHost,
  Mutation,
  ObjectType,
  Parent,
  Query,
  ResolveField,
  Resolver,
  Subscription,
} from '@nestjs/graphql';
import { type ExecutionResult, parse, subscribe } from 'graphql';
import { map, type Observable } from 'rxjs';
import request from 'supertest';
import { currentLock, LockService, WithLock } from '../../lib/index.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { startApp } from '../support/nest-app.js';
import { Overlap } from '../support/overlap.js';
import { type Named, nameOf, permutations, stack } from '../support/stacking.js';
import { until } from '../support/until.js';

const acquire = jest.spyOn(MemoryStore.prototype, 'acquire');
const overlap = new Overlap();
const calls: string[] = [];

@Injectable()
class Deny implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    return GqlExecutionContext.create(context).getArgs<{ id: string }>().id !== 'denied';
  }
}

@Injectable()
class Wrap implements NestInterceptor {
  intercept(_context: ExecutionContext, next: CallHandler<string>): Observable<string> {
    return next.handle().pipe(map((result) => `wrapped ${result}`));
  }
}

class Upper implements PipeTransform {
  transform(value: string): string {
    if (value === 'bad') throw new BadRequestException();
    return value.toUpperCase();
  }
}

async function work(id: string): Promise<string> {
  calls.push(id);
  await overlap.work();
  return String(currentLock()?.keys);
}

const LOCK: Named = [
  'WithLock',
  () => WithLock((id: string) => `gql:${id}`, { retry: { delay: 1, jitter: 0 } }) as MethodDecorator,
];
const GUARD: Named = ['UseGuards', () => UseGuards(Deny)];
const WRAP: Named = ['UseInterceptors', () => UseInterceptors(Wrap)];

const queries = permutations<Named>([
  ['Query', (name) => Query(() => String, { name }) as MethodDecorator],
  LOCK,
  GUARD,
  WRAP,
]);
const mutations = permutations<Named>([
  ['Mutation', (name) => Mutation(() => String, { name }) as MethodDecorator],
  LOCK,
  GUARD,
]);
const fields = permutations<Named>([
  ['ResolveField', (name) => ResolveField(name, () => String) as MethodDecorator],
  LOCK,
  GUARD,
]);

@ObjectType()
class Thing {
  @Field()
  readonly name: string = 'thing';
}

const rootResolvers = [...queries, ...mutations].map((order, index) => {
  @Resolver()
  class Root {
    async run(@Args('id', new Upper()) id: string): Promise<string> {
      return work(id);
    }
  }
  const decorators = order.map(([, decorator]) => decorator(`run${index}`));
  stack(Root, 'run', decorators);
  return Root;
});

const fieldResolvers = fields.map((order, index) => {
  @Resolver(() => Thing)
  class OfThing {
    async run(@Args('id', new Upper()) id: string, @Parent() thing: Thing): Promise<string> {
      return `${thing.name} ${await work(id)}`;
    }
  }
  const decorators = order.map(([, decorator]) => decorator(`field${index}`));
  stack(OfThing, 'run', decorators);
  return OfThing;
});

@Resolver(() => Thing)
class Things {
  @Query(() => Thing)
  thing(): Thing {
    return new Thing();
  }

  @Subscription(() => Boolean)
  @WithLock('below')
  async *below(): AsyncGenerator<{ below: boolean }> {
    while (true) yield { below: currentLock('below')?.isHeld() ?? false };
  }

  @WithLock('above')
  @Subscription(() => Boolean)
  async *above(): AsyncGenerator<{ above: boolean }> {
    while (true) yield { above: currentLock('above')?.isHeld() ?? false };
  }
}

@Injectable({ scope: Scope.REQUEST })
@Resolver()
class PerRequest {
  @Query(() => String)
  @WithLock('per-request')
  async perRequest(): Promise<string> {
    return String(currentLock()?.keys);
  }
}

let app: INestApplication;

beforeAll(async () => {
  app = await startApp({
    imports: [
      GraphQLModule.forRoot<ApolloDriverConfig>({
        driver: ApolloDriver,
        autoSchemaFile: true,
        fieldResolverEnhancers: ['guards'],
      }),
    ],
    providers: [...rootResolvers, ...fieldResolvers, Things, PerRequest],
  });
  await app.listen(0, '127.0.0.1');
});
afterEach(() => {
  overlap.most = 0;
  calls.length = 0;
  acquire.mockClear();
});

async function ask(query: string): Promise<ExecutionResult> {
  const { body } = await request(app.getHttpServer() as Parameters<typeof request>[0])
    .post('/graphql')
    .send({ query });
  return body as ExecutionResult;
}

/** Resolves to the results of two concurrent runs, and of calls that a guard or a pipe rejects. */
async function outcomes(queryFor: (id: string) => string): Promise<object> {
  const both = await Promise.all([ask(queryFor('one')), ask(queryFor('one'))]);
  const ran = [...calls];
  acquire.mockClear();
  calls.length = 0;
  const refused = [await ask(queryFor('denied')), await ask(queryFor('bad'))];
  return {
    answers: both.map(({ data, errors }) => data ?? errors),
    ran,
    most: overlap.most,
    refused: refused.map(({ errors }) => errors?.[0]?.extensions?.code),
    ranOrLocked: calls.length + acquire.mock.calls.length,
  };
}

const locked = (answer: object): object => ({
  answers: [answer, answer],
  ran: ['ONE', 'ONE'],
  most: 1,
  refused: ['FORBIDDEN', 'BAD_REQUEST'],
  ranOrLocked: 0,
});

describe('queries and mutations, with the decorators in every order', () => {
  const cases = [...queries, ...mutations].map((order, index) => [nameOf(order), index] as const);

  test.each(cases)(
    'concurrent runs with %s wait for each other, and a call that a guard or a pipe rejects acquires no lock',
    async (_name, index) => {
      const [kind, prefix] = index < queries.length ? ['query', 'wrapped '] : ['mutation', ''];
      await expect(outcomes((id) => `${kind} { run${index}(id: "${id}") }`)).resolves.toEqual(
        locked({ [`run${index}`]: `${prefix}gql:ONE` }),
      );
    },
  );
});

test.each(fields.map((order, index) => [nameOf(order), index] as const))(
  'concurrent runs of a field with %s wait for each other, and a call that a guard or a pipe rejects acquires no lock',
  async (_name, index) => {
    await expect(outcomes((id) => `{ thing { field${index}(id: "${id}") } }`)).resolves.toEqual(
      locked({ thing: { [`field${index}`]: 'thing gql:ONE' } }),
    );
  },
);

test('fields of one query that need the same lock wait for each other', async () => {
  const { data } = await ask('{ thing { a: field0(id: "one") b: field0(id: "one") } }');
  expect(data).toEqual({ thing: { a: 'thing gql:ONE', b: 'thing gql:ONE' } });
  expect(overlap.most).toBe(1);
});

test('a request-scoped resolver runs under its lock', async () => {
  await expect(ask('{ perRequest }')).resolves.toEqual({ data: { perRequest: 'per-request' } });
});

test.each(['below', 'above'])(
  'a subscription with @WithLock %s @Subscription holds the lock until its client disconnects',
  async (name) => {
    const { schema } = app.get(GraphQLSchemaHost);
    const results = await subscribe({ schema, document: parse(`subscription { ${name} }`) });
    if (!(Symbol.asyncIterator in results)) throw new Error(JSON.stringify(results.errors));
    await expect(results.next()).resolves.toMatchObject({ value: { data: { [name]: true } } });
    const locks = app.get(LockService);
    await expect(locks.tryAcquire(name)).resolves.toBeNull();
    await results.return?.(undefined);
    await until(async () => {
      const lock = await locks.tryAcquire(name);
      await lock?.release();
      return lock !== null;
    });
  },
);
