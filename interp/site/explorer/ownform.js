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

/** What comes into each column, by the family of intermediate values; null where nothing is carried. */
function carriesOf(family, operands, base, columns) {
  let rows = operands.map((value) => digitsIn(value, base, columns));
  if (family === "subtraction" && operands[0] < operands[1]) rows = rows.reverse(); // the smaller is taken away
  const borrows = family === "subtraction" || family === "complement";
  if (!borrows && family !== "addition") return null;
  const into = [0];
  for (let column = 0; column < columns; column++) {
    const own = rows.map((row) => row[column]),
      sum = borrows ? own[0] - own[1] - into[column] : own.reduce((a, b) => a + b) + into[column];
    into.push(borrows ? Number(sum < 0) : Math.floor(sum / base));
  }
  return into;
}

/** {problem, prompt, right, carries} of a typed problem. Throws a ProblemError with one sentence. */
export function encodedBy(text, task) {
  const { form, base } = task,
    refuse = (why) => {
      throw new ProblemError(why);
    };
  const found = /^[\x20-\x7e]*$/.test(text) && new RegExp(`^(?:${form.pattern})$`).exec(text.trim());
  if (!found) refuse(`\u201c${text}\u201d is not a problem of this model; write it like ${task.example}.`);
  const numbers = {},
    operands = [],
    read = found.slice(1),
    fields = form.prompt.filter((part) => !Array.isArray(part));
  let operator = 0;
  fields.forEach((field, i) => {
    if (field.operator) operator = form.symbols.indexOf(read[i]);
    const value = field.operator ? BigInt(operator) : BigInt(form.bits ? `0b${read[i]}` : read[i]),
      limit = BigInt(base) ** BigInt(field.width ?? 0);
    if (!field.operator && value >= limit) refuse(`${field.name} must lie in 0..${limit - 1n}, and ${value} does not.`);
    numbers[field.name] = value;
    if (!field.operator) operands.push(value);
  });
  const asText = ({ name, width, operator: symbol }) =>
    symbol
      ? form.symbols[operator]
      : form.bits
        ? numbers[name].toString(2).padStart(width, "0")
        : String(numbers[name]);
  let at = 0;
  const problem = form.written
    .map((piece) => piece ?? asText(fields[at++]))
    .join("")
    .trim();
  const tokens = (value, { width, reversed }) => {
    const written = digitsIn(value, base, width).map((digit) => task.digits[digit]);
    return reversed ? written : written.reverse();
  };
  const rules = [form.where, form.whereBy[operator]].filter((rule) => rule !== null && rule !== undefined);
  if (rules.some((rule) => valueOf(rule, numbers) === 0n))
    refuse(`\u201c${problem}\u201d is not a problem of this model: its rule leaves it out.`);
  const answer = valueOf(form.functions[operator] ?? form.functions[0], numbers),
    limit = BigInt(base) ** BigInt(form.answer.width);
  if (size(answer) >= limit || (answer < 0n && !form.answer.signed))
    refuse(`The answer of \u201c${problem}\u201d is ${answer}, which does not fit its field.`);
  const into = carriesOf(form.families[operator] ?? form.families[0], operands, base, maxWidth(form)),
    columns = Array.from({ length: form.answer.width }, (_, column) => column);
  if (!form.answer.reversed) columns.reverse();
  const carries = columns.map((column) => (task.carryName && into ? into[column] : null));
  return {
    problem,
    prompt: form.prompt.flatMap((part) =>
      Array.isArray(part) ? part : part.operator ? form.operators[operator] : tokens(numbers[part.name], part),
    ),
    right: [
      ...(form.answer.signed ? [task.signs[Number(answer < 0n)]] : []),
      ...tokens(size(answer), form.answer),
      ...form.ending,
    ],
    carries: [...(form.answer.signed ? [null] : []), ...carries, ...form.ending.map(() => null)],
  };
}

const maxWidth = ({ prompt, answer }) => Math.max(answer.width, ...prompt.map(({ width }) => width ?? 0));
