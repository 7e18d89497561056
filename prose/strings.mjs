import ts from 'typescript';

/** Stands for a value that a string has only when the program runs. Markdown reads it as a piece of code, one word. */
const VALUE = '`x`';

/** The fewest words of a string that is a sentence or a part of one. */
const WORDS_OF_MESSAGE = 4;

/** A string that is a statement of SQL or a piece of Lua. */
const CODE =
  /^\s*(select|insert into|update|delete from|create|drop|alter|local|with|set local)\s|redis\.call|\bthen\b/;

/**
 * The names of the tests of a parsed TypeScript file, and of their groups. A name is the first argument of `test`, `it`
 * or `describe`, or of a function that one of these has returned, such as `test.each(rows)`.
 */
export function testNamesOf(file) {
  const names = [];
  visitAll(file, (node) => {
    if (!ts.isCallExpression(node) || !node.arguments[0]) return;
    if (!/^(test|it|describe)$/.test(rootOf(node.expression)?.text ?? '')) return;
    names.push(
      ...textsOf(node.arguments[0]).map((text) => [{ text, line: lineOf(node.arguments[0], file) }]),
    );
  });
  return names;
}

/**
 * The strings of a parsed TypeScript file that have several words: messages of errors and logs, or parts of such
 * messages. Strings of several lines, which are Lua, SQL and help texts, are left out.
 */
export function messagesOf(file) {
  const seen = new Set();
  const messages = [];
  for (const string of stringsOf(file)) {
    const whole = wholeOf(string);
    if (seen.has(whole) || isMultiLine(string) || isTestName(whole) || isModuleOrType(whole)) continue;
    seen.add(whole);
    for (const text of textsOf(whole)) {
      const isMessage = (text.match(/[a-z']{2,}/gi) ?? []).length >= WORDS_OF_MESSAGE && / /.test(text);
      if (isMessage && !CODE.test(text)) messages.push([{ text, line: lineOf(whole, file) }]);
    }
  }
  return messages;
}

/** Each string and each template of a parsed TypeScript file. */
export function stringsOf(file) {
  const strings = [];
  visitAll(file, (node) => {
    if (ts.isStringLiteral(node) || ts.isTemplateExpression(node) || ts.isNoSubstitutionTemplateLiteral(node))
      strings.push(node);
  });
  return strings;
}

export function isMultiLine(string) {
  return !ts.isStringLiteral(string) && partsOf(string).some((part) => part.text.includes('\n'));
}

/** The lines of a template with their numbers in the file; each value in the template is one word. */
export function rowsOf(template, file) {
  const rows = [];
  let row = '';
  let line = lineOf(template, file);
  for (const part of partsOf(template)) {
    if (part !== partsOf(template)[0]) row += VALUE;
    line = file.getLineAndCharacterOfPosition(part.getStart(file)).line + 1;
    for (const [index, text] of part.text.split('\n').entries()) {
      if (index > 0) {
        rows.push({ text: row, line });
        row = '';
        line += 1;
      }
      row += text;
    }
  }
  return [...rows, { text: row, line }];
}

function partsOf(template) {
  return ts.isTemplateExpression(template)
    ? [template.head, ...template.templateSpans.map((span) => span.literal)]
    : [template];
}

/** The longest chain of `+` that the string is a part of: a message of several lines is one sentence. */
function wholeOf(string) {
  const { parent } = string;
  const isPart =
    (ts.isBinaryExpression(parent) && parent.operatorToken.kind === ts.SyntaxKind.PlusToken) ||
    ((ts.isParenthesizedExpression(parent) || ts.isConditionalExpression(parent)) && partOfSum(parent));
  return isPart ? wholeOf(parent) : string;
}

function partOfSum({ parent }) {
  if (ts.isParenthesizedExpression(parent)) return partOfSum(parent);
  return ts.isBinaryExpression(parent) && parent.operatorToken.kind === ts.SyntaxKind.PlusToken;
}

/** The texts that an expression may have. */
function textsOf(node) {
  if (ts.isStringLiteralLike(node)) return [node.text];
  if (ts.isParenthesizedExpression(node)) return textsOf(node.expression);
  if (ts.isTemplateExpression(node))
    return [
      partsOf(node)
        .map(({ text }) => text)
        .join(VALUE),
    ];
  if (ts.isConditionalExpression(node)) return [...textsOf(node.whenTrue), ...textsOf(node.whenFalse)];
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.PlusToken) {
    const ends = textsOf(node.right);
    return textsOf(node.left).flatMap((start) => ends.map((end) => start + end));
  }
  return [VALUE];
}

function isTestName(node) {
  const { parent } = node;
  return ts.isCallExpression(parent) && /^(test|it|describe)$/.test(rootOf(parent.expression)?.text ?? '');
}

function isModuleOrType({ parent }) {
  return ts.isImportDeclaration(parent) || ts.isExportDeclaration(parent) || ts.isLiteralTypeNode(parent);
}

/** The identifier that an expression such as `test.each(rows)` begins with. */
function rootOf(expression) {
  if (ts.isIdentifier(expression)) return expression;
  if (ts.isPropertyAccessExpression(expression) || ts.isCallExpression(expression))
    return rootOf(expression.expression);
  if (ts.isTaggedTemplateExpression(expression)) return rootOf(expression.tag);
  return undefined;
}

function visitAll(node, look) {
  look(node);
  ts.forEachChild(node, (child) => visitAll(child, look));
}

function lineOf(node, file) {
  return file.getLineAndCharacterOfPosition(node.getStart(file)).line + 1;
}
