import { userInfo } from 'node:os';

/** The name of the user; `undefined` for a user id without a name, which is usual in containers. */
export function userName(): string | undefined {
  try {
    return userInfo().username;
  } catch {
    return undefined;
  }
}
