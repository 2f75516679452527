// Problems of a task whose format, answer and rule are text (own_tasks.py): from what is typed to tokens.

/** What cannot be read as a problem, in one sentence. */
export class ProblemError extends Error {}

const floored = (a, b) => a / b - (a % b !== 0n && a < 0n !== b < 0n ? 1n : 0n); // as in Python
const size = (a) => (a < 0n ? -a : a);
const gcd = (a, b) => (b ? gcd(b, a % b) : size(a));

const OPERATIONS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "//": floored,
  "%": (a, b) => a - b * floored(a, b),
  "**": (a, b) => a ** b,
  "^": (a, b) => a ^ b,
  "&": (a, b) => a & b,
  "|": (a, b) => a | b,
  "<": (a, b) => BigInt(a < b),
  "<=": (a, b) => BigInt(a <= b),
  ">": (a, b) => BigInt(a > b),
  ">=": (a, b) => BigInt(a >= b),
  "==": (a, b) => BigInt(a === b),
  "!=": (a, b) => BigInt(a !== b),
  abs: size,
  min: (a, b) => (a < b ? a : b),
  max: (a, b) => (a > b ? a : b),
  gcd,
};

/** The value of an expression: a number's text, ["name", a field], or [operation, operands ...]. */
function valueOf(tree, numbers) {
  if (typeof tree === "string") return BigInt(tree);
  const [operation, ...parts] = tree;
  if (operation === "name") return numbers[parts[0]];
  return OPERATIONS[operation](...parts.map((part) => valueOf(part, numbers)));
}

/** A number's digits in a base, units first. */
const digitsIn = (value, base, width) =>
  Array.from({ length: width }, (_, column) => Number((value / BigInt(base) ** BigInt(column)) % BigInt(base)));

/** A family's variable in each column (own_tasks.py says which is shown); null for a family without one. */
function variableOf(family, operands, base, columns) {
  let rows = operands.map((value) => digitsIn(value, base, columns));
  const [a, b] = operands,
    borrows = family === "subtraction" || family === "complement";
  if (family === "comparison" || family === "max") return rows[0].map(() => (a < b ? "<" : a > b ? ">" : "="));
  if (family === "subtraction" && a < b) rows = rows.reverse(); // the smaller is taken away
  const products = (column) => rows[0].reduce((sum, digit, i) => sum + (i > column ? 0 : digit * rows[1][column - i]), 0),
    sums = (column) => rows.reduce((sum, row) => sum + row[column], 0);
  const into = [0];
  for (let column = 0; column < columns; column++)
    into.push(
      borrows
        ? Number(rows[0][column] - rows[1][column] - into[column] < 0)
        : Math.floor(((family === "multiplication" ? products : sums)(column) + into[column]) / base),
    );
  return into;
}

/** {problem, prompt, right, shown} of a typed problem. Throws a ProblemError with one sentence. */
export function encodedBy(text, task) {
  const { form } = task,
    base = BigInt(task.base),
    refuse = (why) => {
      throw new ProblemError(why);
    };
  const own = form.words.reduce((left, word) => left.replace(word, ""), text).trim();
  const matches = form.patterns.map((pattern) => new RegExp(`^(?:${pattern})$`).exec(own));
  const found = /^[\x20-\x7e]*$/.test(text) && matches.find((match) => match !== null);
  if (!found) refuse(`\u201c${text}\u201d is not a problem of this model; write it like ${task.example}.`);
  const numbers = {};
  let operator = 0;
  form.written
    .filter((part) => typeof part !== "string")
    .forEach((field, i) => {
      const read = found[i + 1];
      if (field.operator) {
        operator = form.symbols.indexOf(read);
        numbers[field.name] = BigInt(operator);
        return;
      }
      const value = BigInt(form.bits ? `0b${read}` : read);
      if (field.later && value >= base ** BigInt(field.width))
        refuse(`${read} in \u201c${text}\u201d has too many digits for its place in the number ${field.name}.`);
      numbers[field.name] = (numbers[field.name] ?? 0n) + value * base ** BigInt(field.lowest);
    });
  for (const [name, width] of Object.entries(form.widths)) {
    const most = base ** BigInt(width) - 1n;
    if (numbers[name] > most) refuse(`${name} must lie in 0..${most}, and ${numbers[name]} does not.`);
  }
  const asText = ({ name, operator: symbol, lowest, width, later, padded }) => {
    if (symbol) return form.symbols[operator];
    const above = numbers[name] / base ** BigInt(lowest),
      value = later ? above % base ** BigInt(width) : above;
    return value.toString(form.bits ? 2 : 10).padStart(form.bits || padded ? width : 0, "0");
  };
  const problem = form.written
    .map((part) => (typeof part === "string" ? part : asText(part)))
    .join("")
    .trim();
  const computed = (tree) => {
    try {
      return valueOf(tree, numbers);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      return refuse(`\u201c${problem}\u201d is not a problem of this model: it divides by zero.`);
    }
  };
  const rules = [...form.where, form.whereBy[operator]].filter(Boolean);
  if (rules.some((rule) => computed(rule) === 0n))
    refuse(`\u201c${problem}\u201d is not a problem of this model: its rule leaves it out.`);
  const answers = (form.functions[operator] ?? form.functions[0]).map(computed);
  form.numbers.forEach(([, width], i) => {
    if (size(answers[i]) >= base ** BigInt(width) || (answers[i] < 0n && !form.signed))
      refuse(`The answer of \u201c${problem}\u201d is ${answers.join(", ")}, which does not fit its field.`);
  });
  const written = (parts, values) =>
    parts.map((part) => {
      if (part === null) return form.operators[operator];
      if (!Array.isArray(part)) return part;
      const [name, column] = part;
      return task.digits[Number((values[name] / base ** BigInt(column)) % base)];
    });
  const family = form.families[operator] ?? form.families[0],
    operands = Object.keys(form.widths).map((name) => numbers[name]),
    columns = Math.max(...Object.values(form.widths), ...form.numbers.map(([, width]) => width)),
    variable = family && task.shownName ? variableOf(family, operands, task.base, columns) : [];
  const shown =
    form.shown?.[problem] ??
    [...(form.signed ? [null] : []), ...form.answer, ...form.ending].map((part) =>
      Array.isArray(part) ? (variable[part[1]] ?? null) : null,
    );
  return {
    problem,
    prompt: written(form.prompt, numbers),
    right: [
      ...(form.signed ? [task.signs[Number(answers[0] < 0n)]] : []),
      ...written(form.answer, Object.fromEntries(form.numbers.map(([name], i) => [name, size(answers[i])]))),
      ...form.ending,
    ],
    shown,
  };
}
