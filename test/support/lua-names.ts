/** The names that a piece of Lua uses. */
export interface LuaNames {
  /** Names that the text neither declares nor gets from Lua or Redis. */
  readonly free: ReadonlySet<string>;
  /** Locals that the text declares outside of its own blocks, for the text that follows. */
  readonly declared: ReadonlySet<string>;
}

const BUILT_IN = new Set(
  'redis KEYS ARGV string math table tonumber tostring type pairs ipairs unpack select'.split(' '),
);
const WORDS = new Set(
  'and break do else elseif end false for function if in local nil not or repeat return then true until while'.split(
    ' ',
  ),
);
/** Comments, texts, numbers, names, and signs. */
const TOKEN = /--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\d[\w.]*|[A-Za-z_]\w*|\.\.|[=~<>]=|\S/g;

/**
 * Finds the names that a piece of Lua uses. It knows what the scripts use of Lua: no functions, no `repeat`, no tables
 * with names, no `goto`.
 */
export function luaNames(lua: string): LuaNames {
  const tokens = [...lua.matchAll(TOKEN)].map(([token]) => token).filter((token) => !token.startsWith('--'));
  const free = new Set<string>();
  const scopes: Set<string>[] = [new Set()];
  /** Locals whose values are still being read: they begin to exist at the next statement. */
  let coming: string[] = [];
  let depth = 0;
  const isName = (token = ''): boolean => /^[A-Za-z_]/.test(token) && !WORDS.has(token);
  const declare = (): void => {
    for (const name of coming) scopes.at(-1)?.add(name);
    coming = [];
  };
  const namesFrom = (first: number): string[] => {
    const names = [tokens[first] as string];
    for (let at = first + 1; tokens[at] === ','; at += 2) names.push(tokens[at + 1] as string);
    return names;
  };
  for (let at = 0; at < tokens.length; at++) {
    const token = tokens[at] as string;
    const before = tokens[at - 1] ?? ';';
    if ('([{'.includes(token)) depth++;
    if (')]}'.includes(token)) depth--;
    // A statement begins with a word, or with a name after the end of a value.
    const endsValue =
      isName(before) || /^[\d'")\]}]/.test(before) || ['end', 'nil', 'true', 'false'].includes(before);
    if (
      depth === 0 &&
      (isName(token) ? endsValue : /^(local|if|for|while|return|break|do|end|else|elseif)$/.test(token))
    )
      declare();
    switch (token) {
      case 'local':
        coming = namesFrom(at + 1);
        at += 2 * coming.length - 1;
        break;
      case 'for': {
        const names = namesFrom(at + 1);
        at += 2 * names.length - 1;
        // The names exist only in the block, but none of the scripts uses such a name before it.
        scopes.push(new Set(names));
        break;
      }
      case 'do':
        // The block of `for` has begun with its names.
        if (!isLoop(tokens, at)) scopes.push(new Set());
        break;
      case 'while':
      case 'then':
        scopes.push(new Set());
        break;
      case 'else':
      case 'elseif':
      case 'end':
        scopes.pop();
        if (token === 'else') scopes.push(new Set());
        break;
      default:
        if (
          isName(token) &&
          before !== '.' &&
          !BUILT_IN.has(token) &&
          !scopes.some((scope) => scope.has(token))
        )
          free.add(token);
    }
  }
  declare();
  if (scopes.length !== 1) throw new Error(`${scopes.length - 1} blocks have no end`);
  return { free, declared: scopes[0] as Set<string> };
}

/** `true` if this `do` belongs to a `for` or a `while`. */
function isLoop(tokens: readonly string[], at: number): boolean {
  for (let before = at - 1; before >= 0; before--) {
    const token = tokens[before] as string;
    if (token === 'for' || token === 'while') return true;
    if (/^(do|then|else|end|local|return|break)$/.test(token)) return false;
  }
  return false;
}
