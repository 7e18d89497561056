import { tracingChannel } from 'node:diagnostics_channel';
import {
  type Attributes,
  context,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
  type Tracer,
  type TracerProvider,
} from '@opentelemetry/api';
import {
  LOCK_ACQUIRE_CHANNEL,
  LOCK_HOLD_CHANNEL,
  type LockAcquireEvent,
  type LockHoldEvent,
} from '../telemetry/lock-telemetry.events.js';
import { checkBoolean, checkOptionNames } from '../core/checks.js';
import { RedlockError } from '../core/errors.js';

/** Options of {@link RedlockInstrumentation}. */
export interface RedlockInstrumentationConfig {
  /**
   * Starts the tracing in the constructor.
   * @defaultValue true
   */
  readonly enabled?: boolean;

  /**
   * Adds the keys of a lock to its spans, in the attribute `lock.keys`.
   * @defaultValue true
   */
  readonly keys?: boolean;
}

type LockTraceEvent = LockAcquireEvent | LockHoldEvent;

/**
 * Makes OpenTelemetry spans for locks: `acquire <label>` for the acquisition of a lock, including the wait, and `hold
 * <label>` for the time that the lock is held. Both are children of the caller's span. Spans of code under the lock are
 * children of `hold`, and spans of the requests to Redis that acquire the lock are children of `acquire`.
 *
 * The class has the interface of an `Instrumentation` of `@opentelemetry/instrumentation`, but does not need that
 * package.
 *
 * @example
 * ```ts
 * import { registerInstrumentations } from '@opentelemetry/instrumentation';
 * import { RedlockInstrumentation } from 'nestjs-redlock/tracing';
 *
 * registerInstrumentations({ instrumentations: [new RedlockInstrumentation()] });
 * ```
 */
export class RedlockInstrumentation {
  readonly instrumentationName = 'nestjs-redlock';
  readonly instrumentationVersion = '0.1.0';
  #config: RedlockInstrumentationConfig = {};
  #enabled = false;
  #tracer: Tracer = trace.getTracer(this.instrumentationName, this.instrumentationVersion);
  readonly #spans = new WeakMap<LockTraceEvent, Span>();

  readonly #acquire = this.#subscribers<LockAcquireEvent>(
    'acquire',
    ({ error, waited, fencingToken, slots }) => ({
      'lock.outcome': error === undefined ? 'acquired' : outcomeOf(error),
      'lock.wait_time': seconds(waited),
      'lock.fencing_token': fencingToken,
      'lock.slots': slots && [...slots],
    }),
  );
  readonly #hold = this.#subscribers<LockHoldEvent>('hold', ({ error, heldFor, fencingToken, slots }) => ({
    'lock.outcome': error ? 'lost' : 'released',
    'lock.hold_time': seconds(heldFor),
    'lock.fencing_token': fencingToken,
    'lock.slots': slots && [...slots],
  }));

  /** @throws TypeError naming the wrong option */
  constructor(config: RedlockInstrumentationConfig = {}) {
    this.setConfig(config);
    if (config.enabled ?? true) this.enable();
  }

  /** Starts making spans. */
  enable(): void {
    if (this.#enabled) return;
    this.#enabled = true;
    acquisitions.subscribe(this.#acquire);
    holds.subscribe(this.#hold);
  }

  /** Stops making spans. A span that is open at that moment never ends. */
  disable(): void {
    if (!this.#enabled) return;
    this.#enabled = false;
    acquisitions.unsubscribe(this.#acquire);
    holds.unsubscribe(this.#hold);
  }

  /** Sets the provider for later spans, in place of the global provider. */
  setTracerProvider(provider: TracerProvider): void {
    this.#tracer = provider.getTracer(this.instrumentationName, this.instrumentationVersion);
  }

  /** Does nothing, because metrics are in `nestjs-redlock/metrics`. */
  setMeterProvider(): void {}

  /** @throws TypeError naming the wrong option */
  setConfig(config: RedlockInstrumentationConfig): void {
    checkOptionNames('RedlockInstrumentation', config, ['enabled', 'keys']);
    const { enabled, keys } = config;
    if (enabled !== undefined) checkBoolean('enabled', enabled);
    if (keys !== undefined) checkBoolean('keys', keys);
    this.#config = config;
  }

  /** Returns the given options, and whether the tracing is enabled now. */
  getConfig(): RedlockInstrumentationConfig {
    return { ...this.#config, enabled: this.#enabled };
  }

  #subscribers<Event extends LockTraceEvent>(
    name: string,
    outcome: (event: Event) => Attributes,
  ): Record<'start' | 'end' | 'asyncStart' | 'asyncEnd' | 'error', (event: Event) => void> {
    const nothing = (): void => undefined;
    return {
      start: (event) => {
        const span = this.#tracer.startSpan(`${name} ${event.label}`, {
          kind: SpanKind.INTERNAL,
          attributes: this.#attributesOf(event),
        });
        this.#spans.set(event, span);
        const within = trace.setSpan(context.active(), span);
        event.around = (task) => context.with(within, task);
      },
      end: nothing,
      asyncStart: nothing,
      asyncEnd: (event) => {
        const span = this.#spans.get(event);
        if (!span) return;
        span.setAttributes(outcome(event));
        if (event.error !== undefined) fail(span, event.error);
        span.end();
      },
      error: nothing,
    };
  }

  #attributesOf(event: LockTraceEvent): Attributes {
    const { keys, label, method, instance, mode, ttl } = event;
    return {
      'lock.label': label,
      'lock.mode': mode,
      'lock.permits': 'permits' in event ? event.permits : undefined,
      'lock.ttl': seconds(ttl),
      'lock.keys': (this.#config.keys ?? true) ? [...keys] : undefined,
      'lock.instance': instance,
      'code.function.name': method,
    };
  }
}

const acquisitions = tracingChannel<unknown, LockAcquireEvent>(LOCK_ACQUIRE_CHANNEL);
const holds = tracingChannel<unknown, LockHoldEvent>(LOCK_HOLD_CHANNEL);

/** Converts milliseconds into seconds, the unit of durations in the semantic conventions. */
function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1_000;
}

function outcomeOf(error: unknown): string {
  if (!(error instanceof RedlockError)) return 'aborted';
  return error.code === 'LOCK_HELD' ? 'held' : 'unavailable';
}

/** Marks a span as failed. A held lock, or a wait that the caller aborted, is an ordinary outcome and no failure. */
function fail(span: Span, error: unknown): void {
  const { code, message } =
    error instanceof RedlockError ? error : { code: undefined, message: String(error) };
  span.setAttribute('error.type', code ?? 'aborted');
  if (code === undefined || code === 'LOCK_HELD') return;
  if (error instanceof Error) span.recordException(error);
  span.setStatus({ code: SpanStatusCode.ERROR, message });
}
