// Problems of the tasks (models/tasks) in JavaScript: from text to tokens, roles, queries, right answers, position ids and
// what the schoolbook does at each digit. A sequence is segments, each a number in a width and a direction and what
// follows it; a task says which. Tasks that are not known here come with a form that says how to encode a problem (ownform.js),
// or as a table of encoded problems.

import { encodedBy, ProblemError } from "./ownform.js";

const zeros = (n) => Array(n).fill(0);

/** Digits of a number's text, least significant first, without leading zeros. */
const digitsOf = (text) => [...text.replace(/^0+(?=.)/, "")].reverse().map(Number);

/** Digits of column sums of any size, and the carry into each column. */
function withCarries(sums, columns) {
  const digits = [],
    carries = [];
  let carry = 0;
  for (let column = 0; column < columns; column++) {
    carries.push(carry);
    const total = carry + (sums[column] ?? 0);
    digits.push(total % 10);
    carry = Math.floor(total / 10);
  }
  return { digits, carries };
}

const padded = (digits, width) => [...digits, ...zeros(Math.max(0, width - digits.length))];

const added = (a, b) => Array.from({ length: Math.max(a.length, b.length) }, (_, i) => (a[i] ?? 0) + (b[i] ?? 0));

/** A digit of a sum: what the schoolbook does there. */
function sumTruth(a, b, column) {
  const sums = added(a, b),
    { carries } = withCarries(sums, column + 1),
    carry = carries[column];
  const total = sums[column] + carry,
    out = total >= 10 ? 1 : 0;
  const passes = out && sums[column] === 9 ? ", passed on from below" : "";
  return {
    carry,
    sentence: `${a[column]} + ${b[column]} + carry ${carry} = ${total}: write ${total % 10}, carry ${out}${passes}.`,
  };
}

const given = (token, carry = null, name = "carry in") => ({
  carry,
  sentence: `The right digit is ${token}${carry === null ? "" : `, ${name} ${carry}`}.`,
});

/** The same for a target of a task of one's own, in whose place a carry may be another variable. */
function ownTruth(role, token, shown, task) {
  const text = task.vocabulary[token];
  if (role.kind === "eos") return { carry: null, sentence: "The answer ends here." };
  if (role.kind === "sign") return { carry: null, sentence: `The right sign is ${text}.` };
  if (role.kind === "delimiter") return { carry: null, sentence: `\u201c${text}\u201d stands here in every answer.` };
  if (!task.numbers) return { carry: shown, sentence: `The right token is ${text}.` };
  if (task.shownName !== "order") return given(text, shown, task.shownName);
  const [a, b] = Object.keys(task.form?.widths ?? { a: 0, b: 0 });
  return { carry: shown, sentence: `The right digit is ${text}, as ${a} ${shown} ${b}.` };
}

/** Distances back to the last mark and forward to the next; a mark's own are 0. */
function places(isMark) {
  let last = -1;
  const back = isMark.map((mark, i) => i - (mark ? (last = i) : last));
  let next = isMark.length;
  const ahead = [...isMark]
    .reverse()
    .map((mark, j) => {
      const i = isMark.length - 1 - j;
      return (mark ? (next = i) : next) - i;
    })
    .reverse();
  return { back, ahead };
}

/** How many of a token there have been, the one at each place included. */
function counts(tokens, token) {
  let n = 0;
  return tokens.map((here) => (n += here === token ? 1 : 0));
}

// ---- the tasks: segments(numbers, task) -> {segments, truth(role)}, ids(tokens, task)

const segment = (kind, label, index, digits, down, end, endRole, response = kind !== "operand") => ({
  kind,
  label,
  index,
  digits,
  down,
  end,
  endRole,
  response,
});

const TASKS = {
  /** Two numbers of a fixed width: MicroAdder's, the 456's and the two-digit formats. */
  pair: {
    segments([a, b], task) {
      const width = task.width,
        name = (letter) => (column) => `${letter}${column}`;
      const [x, y] = [a, b].map((digits) => padded(digits, width + 1));
      const sum = withCarries(added(x, y), width + 1).digits,
        [afterA, afterB, afterS] = task.ends;
      const operand = (letter, index, digits, end, text) =>
        segment("operand", name(letter), index, digits.slice(0, width), task.down, end, {
          kind: "delimiter",
          label: text,
        });
      return {
        segments: [
          operand("a", 0, x, afterA, "+"),
          operand("b", 1, y, afterB, "="),
          segment("answer", name("s"), null, sum, false, afterS, { kind: "eos", label: "EOS" }),
        ],
        truth: (role) => sumTruth(x, y, role.column),
      };
    },
  },
  addition: {
    segments(operands, task) {
      const m = operands.length,
        n = Math.max(...operands.map((x) => x.length)),
        width = n + String(m).length;
      const [PLUS, EQUALS, ARROW, DOLLAR] = [10, 11, 12, 13],
        sums = [zeros(width)];
      for (const x of operands) sums.push(withCarries(added(sums[sums.length - 1], x), width).digits);
      const first = task.scratchpad ? task.skipped : m,
        written = sums.slice(first);
      const name = (letter, i) => (column) => `${letter}${i}[${column}]`;
      return {
        segments: [
          ...operands.map((x, i) =>
            segment(
              "operand",
              name("a", i + 1),
              i + 1,
              padded(x, width),
              !task.reversedQuery,
              i === m - 1 ? EQUALS : PLUS,
              { kind: "delimiter", label: i === m - 1 ? "=" : "+", index: i + 1 },
            ),
          ),
          ...written.map((x, i) =>
            segment(
              first + i === m ? "answer" : "scratchpad",
              name("b", first + i),
              first + i,
              x,
              !task.reversedResponse,
              first + i === m ? DOLLAR : ARROW,
              first + i === m ? { kind: "eos", label: "EOS" } : { kind: "delimiter", label: ">", index: first + i + 1 },
            ),
          ),
        ],
        truth: (role) =>
          role.index > 0 ? sumTruth(padded(operands[role.index - 1], width), sums[role.index - 1], role.column) : null,
      };
    },
    ids(tokens, task) {
      const [PLUS, EQUALS, ARROW, DOLLAR] = [10, 11, 12, 13];
      const { back, ahead } = places(tokens.map((token) => token >= PLUS));
      const equals = counts(tokens, EQUALS),
        pluses = counts(tokens, PLUS),
        arrows = counts(tokens, ARROW);
      const width = equals[equals.length - 1]
        ? tokens.filter((token, i) => token < PLUS && equals[i] === 0 && pluses[i] === 0).length
        : 0;
      return tokens.map((token, i) => {
        const after = equals[i] - (token === EQUALS) > 0,
          response = after || token === EQUALS;
        const level1 =
          token >= PLUS
            ? 1
            : after
              ? task.reversedResponse
                ? 1 + back[i]
                : 2 + width - back[i]
              : 1 + (task.reversedQuery ? back[i] : ahead[i]);
        const level2 = 1 + (response ? arrows[i] + task.skipped : pluses[i] - (token === PLUS));
        const levels = task.scratchpad ? [level1, level2] : [level1];
        return token === DOLLAR ? levels.map(() => 0) : [Math.max(1, levels[0]), ...levels.slice(1)];
      });
    },
  },
  multiplication: {
    segments([a, b], task) {
      const [M, N] = [a.length, b.length],
        [TIMES, EQUALS, PLUS, ARROW, DOLLAR] = [10, 11, 12, 13, 14];
      const products = b.map((digit) =>
        withCarries(
          a.map((x) => x * digit),
          M + 1,
        ),
      );
      const sums = [];
      products.forEach(({ digits }, k) => {
        sums.push(withCarries(added(sums[k - 1]?.digits ?? [], [...zeros(k), ...digits]), M + N));
      });
      const name =
        (letter, step = "") =>
        (column) =>
          `${letter}${step}[${column}]`;
      const operands = [
        segment("operand", name("A"), 1, a, true, TIMES, { kind: "delimiter", label: "*" }),
        segment("operand", name("B"), 2, b, true, EQUALS, { kind: "delimiter", label: "=" }),
      ];
      const end = { kind: "eos", label: "EOS" };
      const carryOf = (role) => (role.label.startsWith("p") ? products : sums)[role.index - 1].carries[role.column];
      if (!task.scratchpad) {
        return {
          segments: [...operands, segment("answer", name("c"), 1, sums[N - 1].digits, false, DOLLAR, end)],
          truth: (role) => given(sums[N - 1].digits[role.column], sums[0].carries[role.column]),
        };
      }
      const stage1 = products.map(({ digits }, k) =>
        segment("scratchpad", name("p", k + 1), k + 1, digits, false, k === N - 1 ? EQUALS : PLUS, {
          kind: "delimiter",
          label: k === N - 1 ? "=" : "+",
          index: k + 2,
        }),
      );
      const stage2 = sums.map(({ digits }, k) =>
        segment(
          k === N - 1 ? "answer" : "scratchpad",
          name("c", k + 1),
          k + 1,
          digits,
          false,
          k === N - 1 ? DOLLAR : ARROW,
          k === N - 1 ? end : { kind: "delimiter", label: ">", index: k + 2 },
        ),
      );
      const digitOf = (role) => (role.label.startsWith("p") ? products : sums)[role.index - 1].digits[role.column];
      return { segments: [...operands, ...stage1, ...stage2], truth: (role) => given(digitOf(role), carryOf(role)) };
    },
    ids(tokens, task) {
      const [TIMES, EQUALS, PLUS, ARROW, DOLLAR] = [10, 11, 12, 13, 14];
      const { back, ahead } = places(tokens.map((token) => token >= TIMES));
      const [times, equals, pluses, arrows] = [TIMES, EQUALS, PLUS, ARROW].map((token) => counts(tokens, token));
      return tokens.map((token, i) => {
        const response = equals[i] >= 1;
        if (token === DOLLAR) return task.scratchpad ? [0, 0, 0] : [0];
        if (!task.scratchpad) return [response ? 1 + back[i] : token === TIMES ? 1 : 1 + ahead[i]];
        const first = equals[i] === 1,
          second = equals[i] > 1,
          number = 1 + (second ? arrows[i] : pluses[i]);
        const secondOperand = times[i] > 0 && token !== TIMES && !response;
        return [
          times[i] === 0 ? 1 + ahead[i] : first ? 1 + back[i] : 0,
          secondOperand ? ahead[i] : response ? number : 0,
          first ? number + back[i] : second ? 1 + back[i] : 0,
        ];
      });
    },
  },
  parity: {
    segments([bits], task) {
      const [EQUALS, DOLLAR] = [2, 3],
        running = [];
      bits.forEach((bit, i) => running.push((bit + (running[i - 1] ?? 0)) % 2));
      const name = (letter) => (column) => `${letter}[${column}]`,
        last = running[running.length - 1];
      const response = task.scratchpad ? running : [last],
        end = { kind: "eos", label: "EOS" };
      return {
        segments: [
          segment("operand", name("x"), 1, bits, false, EQUALS, { kind: "delimiter", label: "=" }),
          { ...segment("scratchpad", name("p"), 1, response, false, DOLLAR, end), last: "answer" },
        ],
        truth: ({ column }) => ({
          carry: null,
          sentence: task.scratchpad
            ? `Parity before ${running[column - 1] ?? 0}, bit ${bits[column]}: write ${running[column]}.`
            : `The parity of all bits is ${last}.`,
        }),
      };
    },
    ids(tokens) {
      const { back } = places(tokens.map((token) => token >= 2));
      return tokens.map((token, i) => [token === 3 ? 0 : token < 2 ? back[i] + 1 : 1]);
    },
  },
};

// ---- problems

/** A problem's text without spaces, but for those that alone stand between the numbers of a table's problem. */
function tidy(text, task) {
  const apart = task.kind === "table" && /^[\d\s=]+$/.test(text);
  return text
    .trim()
    .replace(/\s*=$/, "")
    .replace(/\s+/g, apart ? " " : "");
}

/** The numbers of a problem's text, as digits. */
function parsed(text, task) {
  const parts = text
    .replace(/\s+/g, "")
    .replace(/=$/, "")
    .split(task.operator || null);
  const refuse = (why) => {
    throw new ProblemError(why);
  };
  if (task.kind === "parity") {
    if (!/^[01]+$/.test(parts[0])) refuse(`\u201c${text}\u201d is not a row of bits; write it like ${task.example}.`);
    return [[...parts[0]].map(Number)];
  }
  if (!parts.every((part) => /^\d+$/.test(part))) {
    refuse(`\u201c${text}\u201d is not a problem of this model; write it like ${task.example}.`);
  }
  const numbers = parts.map(digitsOf),
    longest = Math.max(...numbers.map((x) => x.length));
  if (task.kind !== "addition" && numbers.length !== 2) refuse(`This model takes two numbers, not ${numbers.length}.`);
  if (task.kind === "pair" && longest > task.width)
    refuse(`This model takes numbers of at most ${task.width} digits, not ${longest}.`);
  if (task.maxOperands && numbers.length > task.maxOperands)
    refuse(`This model adds at most ${task.maxOperands} numbers, not ${numbers.length}.`);
  if (task.maxDigits && longest > task.maxDigits)
    refuse(`This model takes numbers of at most ${task.maxDigits} digits, not ${longest}.`);
  return numbers;
}

/** Segments as tokens: {tokens, roles, response: whether a token is the model's to write}. */
function composed(segments, bos) {
  const tokens = [],
    roles = [],
    response = [];
  const write = (token, role, isResponse) => {
    tokens.push(token);
    roles.push(role);
    response.push(isResponse);
  };
  if (bos !== null) write(bos, { kind: "bos", label: "$", column: null, index: null }, false);
  for (const part of segments) {
    const columns = part.digits.map((_, column) => column);
    for (const column of part.down ? columns.reverse() : columns) {
      const kind = part.last && column === part.digits.length - 1 ? part.last : part.kind;
      write(part.digits[column], { kind, label: part.label(column), column, index: part.index }, part.response);
    }
    if (part.end !== null) write(part.end, { column: null, index: null, ...part.endRole }, part.response);
  }
  return { tokens, roles, response };
}

/**
 * A problem as the model reads it: {problem, prompt, length, roles, queries, right, truths, ids, lines, keys, labels}.
 * Throws a ProblemError with one sentence for what the model cannot read.
 */
export function layoutOf(text, task, cfg) {
  const clean = tidy(text, task);
  let layout;
  if (task.kind === "table") {
    const row = task.form ? encodedBy(text, task) : task.rows[clean];
    if (!row) {
      const error = new ProblemError(`${held(task)} \u201c${text}\u201d is none of them.`);
      throw Object.assign(error, { unread: clean }); // the kernel may know
    }
    layout = {
      prompt: row.prompt,
      right: row.right,
      roles: task.roles,
      queries: task.queries,
      length: task.length,
      problem: row.problem ?? clean,
      truths: row.right.map((token, i) => ownTruth(task.roles[task.queries[i] + 1], token, row.shown[i], task)),
      ids: null,
    };
  } else {
    const kind = TASKS[task.kind],
      { segments, truth } = kind.segments(parsed(text, task), task);
    const { tokens, roles, response } = composed(segments, task.bos);
    const queries = response.flatMap((is, i) => (is ? [i - 1] : [])),
      right = queries.map((query) => tokens[query + 1]);
    const truths = queries.map((query) => {
      const role = roles[query + 1];
      if (role.kind === "eos") return { carry: null, sentence: "The answer ends here." };
      if (role.column === null) return { carry: null, sentence: `The next number begins: ${role.label}.` };
      return truth(role) ?? given(tokens[query + 1]);
    });
    layout = {
      prompt: tokens.slice(0, queries[0] + 1),
      length: tokens.length - 1,
      roles,
      queries,
      right,
      truths,
      ids: kind.ids ? (tokens) => kind.ids(tokens, task) : null,
    };
    if (layout.length > task.mostTokens)
      throw new ProblemError(`This problem takes ${layout.length} tokens; the page shows at most ${task.mostTokens}.`);
    if (cfg.position_limits) {
      const needed = layout.ids(tokens.slice(0, -1));
      cfg.position_limits.forEach((limit, level) => {
        const most = Math.max(...needed.map((ids) => ids[level]));
        if (most > limit)
          throw new ProblemError(
            `This problem needs position id ${most}, and the model\u2019s tables end at ${limit}: fewer or shorter numbers are needed.`,
          );
      });
    } else if (layout.length > cfg.n_ctx)
      throw new ProblemError(`This problem takes ${layout.length} tokens, and the model has ${cfg.n_ctx}.`);
  }
  const targets = layout.queries.map((query) => layout.roles[query + 1]);
  return {
    problem: clean,
    ...layout,
    targets,
    keys: numbered(targets.map((role) => keyOf(role, task))),
    labels: numbered(targets.map(({ label }) => label)),
    lines: linesOf(task.numbers === false ? inOneLine(layout) : layout),
  };
}

/** Names, with the number of the occurrence behind those that were there before. */
function numbered(names) {
  const seen = {};
  return names.map((name) => ((seen[name] = (seen[name] ?? 0) + 1) === 1 ? name : `${name} (${seen[name]})`));
}

/** A string's tokens as the cells of one line. */
const inOneLine = ({ roles, length }) => ({
  length,
  roles: roles.map((role, column) => (role.kind === "operand" ? { ...role, column, index: 0 } : role)),
});

/** What a target is called in every format that has it, so that two models move together. */
function keyOf(role, task) {
  if (role.kind === "answer" && task.form?.numbers.length > 1) return role.label;
  if (role.kind === "answer") return task.kind === "parity" ? "answer" : `s${role.column}`;
  return role.kind === "eos" ? "EOS" : `${role.label}|${role.index}`;
}

/**
 * The numbers of the input, each a line: cells by column (what stands between two columns has a number between theirs),
 * and the delimiters after them.
 */
function linesOf({ roles, length }) {
  const lines = [];
  roles.slice(0, length).forEach((role, at) => {
    if (role.column === null) {
      if (!lines.length) lines.push({ key: null, label: "", cells: {}, extra: [] });
      lines[lines.length - 1].extra.push(at);
      return;
    }
    const label = role.label.replace(/\[.*|\d+$/, ""),
      key = `${["answer", "scratchpad"].includes(role.kind) ? "answer" : role.kind} ${role.index} ${label}`,
      last = lines[lines.length - 1],
      same = last?.key === key,
      within = same && role.column < last.lowest ? last.extra.splice(0) : []; // the point of 16.25
    const line = same && !last.extra.length ? last : { key, label, cells: {}, extra: [] };
    if (line !== last) lines.push(line);
    within.forEach((between, i) => {
      line.cells[role.column + 1 - (i + 1) / (within.length + 1)] = between;
    });
    line.cells[role.column] = at;
    line.lowest = role.column;
  });
  return lines;
}

/** Answer tokens as a number's text, in decimal and with its sign; null where they spell none. */
function spelled({ targets }, task, tokens) {
  if (task.kind === "table" && !task.numbers) return null;
  if (task.form?.inPieces) return piecesOf(task, tokens);
  const answer = targets.map(({ kind, column }, i) => ({ kind, column, token: tokens[i] })),
    digits = answer
      .filter(({ kind }) => kind === "answer")
      .map(({ column, token }) => ({ column, digit: task.digits.indexOf(token) })),
    signs = answer.filter(({ kind }) => kind === "sign").map(({ token }) => task.signs.indexOf(token));
  if (!digits.length || digits.some(({ digit }) => digit < 0) || signs.includes(-1)) return null;
  if (task.kind === "parity") return String(digits[0].digit);
  const base = BigInt(task.base),
    size = digits.reduce((sum, { column, digit }) => sum + BigInt(digit) * base ** BigInt(column ?? 0), 0n);
  if (signs[0] === 1 && size === 0n) return null; // no task writes -0
  return (signs[0] === 1 ? "-" : "") + (task.form?.bits ? size.toString(2).padStart(digits.length, "0") : size);
}

/** The text of an answer that is written in pieces or has several numbers. */
function piecesOf({ form, digits, signs, separator, vocabulary }, tokens) {
  const after = Number(form.signed),
    values = form.answer.map((part, i) => (Array.isArray(part) ? digits.indexOf(tokens[after + i]) : null)),
    literals = form.answer.every((part, i) => Array.isArray(part) || part === tokens[after + i]);
  if (!literals || values.includes(-1) || (after && !signs.includes(tokens[0]))) return null;
  if (after && tokens[0] === signs[1] && !values.some(Boolean)) return null; // no task writes -0
  return tokens
    .slice(0, after + form.answer.length)
    .map((token) => vocabulary[token])
    .join(separator);
}

/** The same; the tokens' own texts where they spell none. */
export function numberOf(layout, task, tokens) {
  if (tokens.some((token) => token < 0)) return "no number";
  return spelled(layout, task, tokens) ?? tokens.map((token) => task.vocabulary?.[token] ?? "?").join(task.numbers ? "" : (task.separator ?? ""));
}

/** How many problems of a task the page holds, where it cannot encode others. */
export const held = ({ rows, size }) =>
  `This page holds ${Object.keys(rows).length.toLocaleString("en")} of the ${size ? `${size} ` : ""}problems of this task.`;

/** Problems drawn uniformly in the shape of another, the same ones each time: for means. */
export function drawn(text, task, n) {
  if (task.kind === "table") return task.drawn.slice(0, n);
  let seed = 2025;
  const random = () => {
    // mulberry32
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const sizes = parsed(text, task).map((x) => x.length);
  const widths =
    task.kind === "pair"
      ? [task.width, task.width]
      : task.kind === "addition"
        ? sizes.map(() => Math.max(...sizes))
        : sizes;
  const fixed = task.kind === "addition" || task.kind === "multiplication"; // numbers of exactly so many digits
  const one = (width) =>
    Array.from({ length: width }, (_, i) =>
      fixed && i === 0 && width > 1 ? 1 + Math.floor(random() * (task.base - 1)) : Math.floor(random() * task.base),
    ).join("");
  return Array.from({ length: n }, () => widths.map(one).join(task.operator));
}
