import { spreadOf, type Spread } from './statistics.js';

/** Figures of one round for one library, by the name of the figure. */
export type Sample = Readonly<Record<string, number>>;

/** A library that runs once in each round. */
export interface Runner {
  readonly name: string;
  run(round: number): Promise<Sample>;
}

/** The summary of a figure over all rounds. */
export interface Figure extends Spread {
  /** Ratio to the first runner, calculated in each round. */
  readonly ratio: Spread | undefined;
}

/** Figures of each runner. The outer key is the name of the runner, the inner key is the name of the figure. */
export type Figures = ReadonlyMap<string, Readonly<Record<string, Figure>>>;

/**
 * Measures all runners in each round. Each round begins with a different runner, so that a disturbance of the machine
 * affects all runners alike. Ratios are calculated within a round; medians are calculated over these ratios.
 */
export async function interleaved(runners: readonly Runner[], rounds: number): Promise<Figures> {
  const samples = new Map<string, Sample[]>(runners.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < runners.length; turn++) {
      const runner = runners[(round + turn) % runners.length]!;
      samples.get(runner.name)?.push(await runner.run(round));
    }
  }
  const baseline = runners[0] && samples.get(runners[0].name);
  return new Map([...samples].map(([name, ofRunner]) => [name, figuresOf(ofRunner, baseline)]));
}

function figuresOf(samples: readonly Sample[], baseline: readonly Sample[] | undefined) {
  const names = Object.keys(samples[0] ?? {});
  return Object.fromEntries(
    names.map((name): [string, Figure] => {
      const values = samples.map((sample) => sample[name] ?? NaN);
      const ratios = samples.flatMap((sample, round) => {
        const reference = baseline?.[round]?.[name];
        return reference === undefined || reference === 0 ? [] : [(sample[name] ?? NaN) / reference];
      });
      return [name, { ...spreadOf(values), ratio: ratios.length > 0 ? spreadOf(ratios) : undefined }];
    }),
  );
}

/** Summarizes values of a runner that is compared with no other runner, so that there is no ratio. */
export function alone(values: readonly number[]): Figure {
  return { ...spreadOf(values), ratio: undefined };
}

/** Makes figures from one measurement, by name. */
export function once(sample: Sample): Readonly<Record<string, Figure>> {
  return Object.fromEntries(Object.entries(sample).map(([name, value]) => [name, alone([value])]));
}

/** Renames figures to `prefix.figure`, so that they differ from the figures of other runs. */
export function prefixed(prefix: string, sample: Sample): Sample {
  return Object.fromEntries(Object.entries(sample).map(([name, value]) => [`${prefix}.${name}`, value]));
}
