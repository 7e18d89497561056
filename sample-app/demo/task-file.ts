import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { type NewTask, taskSchema } from '../tasks/create-tasks.schema.js';

/**
 * Reads a file of tasks.
 *
 * @throws Error that says what is wrong with the file
 */
export async function readTaskFile(path: string): Promise<NewTask[]> {
  const text = await readFile(path, 'utf8').catch((error: Error) => {
    throw new Error(`Cannot read the tasks: ${error.message}`, { cause: error });
  });
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch (error) {
    throw new Error(`${path} is not JSON: ${(error as Error).message}`, { cause: error });
  }
  const result = z.array(taskSchema).min(1).safeParse(content);
  if (!result.success)
    throw new Error(`${path} does not hold an array of tasks:\n${z.prettifyError(result.error)}`);
  return result.data;
}
