// The drawings of the view, as SVG: arcs of attention, what components add through each other, the digits' plane.

import { planeOf, writers } from "./attribution.js";
import { escaped, number, partName, shade, streams, tokenText, withSign } from "./parts.js";

const INK = "var(--cx-ink,#222)",
  SOFT = "var(--cx-soft,#5f5f5f)",
  LINE = "var(--cx-line,#d5d5d5)",
  BLUE = "var(--cx-blue,#0072b2)",
  VERMILION = "var(--cx-vermilion,#d55e00)",
  ORANGE = "var(--cx-orange,#e69f00)",
  PAPER = "var(--cx-paper,#fff)";

const svg = (
  width,
  height,
  label,
  body,
  extra = "",
) => `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img"
  aria-label="${escaped(label)}" xmlns="http://www.w3.org/2000/svg" font-family="Inter,Helvetica,Arial,sans-serif" ${extra}>${body}</svg>`;

const f = (x) => (Number.isFinite(x) ? Number(x.toFixed(2)) : 0);

const text = (x, y, words, options = "") =>
  `<text x="${f(x)}" y="${f(y)}" ${options.includes("font-size") ? "" : 'font-size="12"'} ${
    options.includes("fill") ? "" : `fill="${INK}"`
  } text-anchor="middle" ${options}>${escaped(words)}</text>`;

// ---- arcs

/** The tokens in a row, with an arc from one to each that it looks at: of one head, or the strongest of all. */
export function arcs(frame, state, target) {
  const { entry, layout, run } = frame,
    { cfg } = entry,
    query = layout.queries[target];
  const from = Math.min(state.hover[frame.i] ?? query, layout.length - 1),
    chosen = state.head[frame.i];
  const rows = [];
  for (let layer = 0; layer < cfg.n_layers; layer++)
    for (let h = 0; h < cfg.n_heads; h++) {
      if (!chosen || chosen === `L${layer}H${h}`) rows.push(run.acts[`blocks.${layer}.attn.hook_pattern`][from][h]);
    }
  const share = [...Array(from + 1).keys()].map((key) => Math.max(...rows.map((row) => row[key])));
  const gap = state.frames.length > 1 ? 15 : 18, // two panels of a wide page hold 35 tokens each
    width = gap * layout.length + 8,
    base = 84,
    x = (at) => 4 + gap * (at + 0.5);
  const drawn = share.map((value, key) => {
    const dark = shade(value, state.log);
    if (dark < 0.02) return "";
    const high = Math.min(74, 10 + 1.6 * gap * Math.sqrt(from - key)),
      a = x(from),
      b = x(key);
    const path =
      key === from
        ? `M${a - 4} ${base - 14}c-6 -16 14 -16 8 0`
        : `M${f(a)} ${base - 14}C${f(a)} ${f(base - 14 - high)} ${f(b)} ${f(base - 14 - high)} ${f(b)} ${base - 14}`;
    return `<path d="${path}" fill="none" stroke="${BLUE}" stroke-opacity="${f(0.15 + 0.85 * dark)}" stroke-width="${f(0.8 + 3.4 * dark)}"><title>${escaped(
      layout.roles[from].label,
    )} to ${escaped(layout.roles[key].label)}: attention ${number(value)}</title></path>`;
  });
  const tokens = [...run.tokens].map((token, at) => {
    const here = at === from,
      later = at > from ? 'opacity="0.7"' : "";
    return `<g data-at="${at}" ${here ? `data-here="${f(x(at))}"` : ""}><rect x="${f(x(at) - gap / 2)}" y="${base - 13}" width="${gap}" height="30" fill="${here ? ORANGE : PAPER}" fill-opacity="${
      here ? 0.45 : 0
    }"/>${text(x(at), base + 2, entry.vocabulary[token].replace(/^<(.).*>$/, "$1"), `font-size="13" ${here ? 'font-weight="700"' : later}`)}${text(
      x(at),
      base + 14,
      shortRole(layout.roles[at]),
      `font-size="${layout.roles[at].label.length > 3 ? 7 : 8.5}" fill="${SOFT}"`,
    )}<title>${escaped(layout.roles[at].label)}, position ${at}</title></g>`;
  });
  const label = `Attention from ${layout.roles[from].label} (position ${from}), ${chosen ?? (rows.length > 1 ? "the strongest of all heads" : "the only head")}: ${share
    .map((value, key) => [value, key])
    .filter(([value]) => value >= 0.03)
    .sort((a, b) => b[0] - a[0])
    .slice(0, 5)
    .map(([value, key]) => `${layout.roles[key].label} ${number(value)}`)
    .join(", ")}`;
  return { label, svg: svg(width, 104, label, drawn.join("") + tokens.join(""), 'data-arcs tabindex="0"') };
}

const shortRole = ({ label, kind }) =>
  kind === "delimiter" || kind === "bos" ? "" : label.replace(/\[(\d+)\]/, ".$1");

// ---- what components add

/** Components by depth, with edges as wide as what one adds through the other to the contrast of the chosen logit. */
export function flow(frame, state, target) {
  const { model, given } = frame;
  if (!given) return null;
  const parts = given.parts,
    columns = [...new Set(parts.map(({ column }) => column))],
    last = columns.length;
  const most = Math.max(...given.edges.map(({ value }) => Math.abs(value)), Math.abs(given.biases), 1e-30);
  const inColumn = (column) => parts.filter((part) => part.column === column),
    rows = Math.max(2, ...columns.map((column) => inColumn(column).length));
  const down = state.narrow && rows <= 6, // on a phone, depth goes down the page
    dense = rows > 9,
    [high, wide] = dense ? [16, 66] : [28, 52],
    long = down ? last * 58 + 56 : Math.max(330, (last + 1) * 78),
    broad = down ? 324 : Math.max(120, rows * (dense ? 19 : 34) + 34),
    [width, height] = down ? [broad, long] : [long, broad],
    placed = (along, beside) => (down ? [beside, along] : [along, beside]),
    at = { logit: placed(long - (down ? 26 : 36), broad / 2) };
  columns.forEach((column, i) =>
    inColumn(column).forEach((part, j, all) => {
      const beside = down ? 0 : 18;
      at[part.name] = placed(
        (down ? 16 : 34) + (i * (long - 76)) / last,
        beside + ((broad - 1.33 * beside) * (j + 0.5)) / all.length,
      );
    }),
  );
  const shown = given.edges
    .filter(({ value }) => Math.abs(value) >= 0.02 * most)
    .sort((a, b) => Math.abs(a.value) - Math.abs(b.value))
    .slice(-60);
  const lines = shown.map(({ from, to, value }) => {
    const [x1, y1] = at[from],
      [x2, y2] = at[to],
      share = Math.abs(value) / most,
      [bx, by] = down ? [0, (y2 - y1) / 2] : [(x2 - x1) / 2, 0];
    return `<path d="M${f(x1)} ${f(y1)}C${f(x1 + bx)} ${f(y1 + by)} ${f(x2 - bx)} ${f(y2 - by)} ${f(x2)} ${f(y2)}" fill="none" stroke="${
      value < 0 ? VERMILION : BLUE
    }" stroke-width="${f(0.6 + 6.4 * share)}" stroke-opacity="${f(0.25 + 0.5 * share)}" data-from="${from}" data-to="${to}"><title>${escaped(
      partName(from),
    )} ${to === "logit" ? "to the logit" : `through ${escaped(partName(to))}`}: ${withSign(value)}</title></path>`;
  });
  const token = tokenText(frame.entry, frame.run.answer[target]),
    against = state.against === "mean" ? "the mean" : tokenText(frame.entry, frame.contrast.against);
  const nodes = parts.map((part) => {
    const [x, y] = at[part.name],
      edited = frame.edits[part.name]
        ? `stroke="${VERMILION}" stroke-dasharray="3 2" stroke-width="2"`
        : `stroke="${INK}"`;
    return `<g data-part="${part.name}"><rect x="${f(x - wide / 2)}" y="${f(y - high / 2)}" width="${wide}" height="${high}" rx="3" fill="${PAPER}" ${edited}/>${
      dense
        ? text(x, y + 4, `${shortPart(part, model)} ${withSign(part.value)}`, `font-size="8.5"`)
        : text(x, y - 2, shortPart(part, model), 'font-size="11" font-weight="600"') +
          text(x, y + 10, withSign(part.value), `font-size="10" fill="${SOFT}"`)
    }<title>${escaped(partName(part.name))}: ${withSign(part.value)}</title></g>`;
  });
  const [x, y] = at.logit;
  const end = `<rect x="${x - 32}" y="${y - 24}" width="64" height="48" rx="3" fill="${PAPER}" stroke="${INK}" stroke-width="2"/>${text(
    x,
    y - 9,
    `\u201c${token}\u201d`,
    'font-size="13" font-weight="700"',
  )}${text(x, y + 4, `over ${against === "the mean" ? "mean" : `\u201c${against}\u201d`}`, `font-size="9.5" fill="${SOFT}"`)}${text(
    x,
    y + 17,
    withSign(frame.contrast.value),
    'font-size="12" font-weight="600"',
  )}`;
  const top = given.edges
    .filter(({ to }) => to !== "logit")
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    .slice(0, 3)
    .map(({ from, to, value }) => `${from}\u2192${to} ${withSign(value)}`);
  const direct = parts
    .slice()
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    .slice(0, 3)
    .map(({ name, value }) => `${name} ${withSign(value)}`);
  const label = `What adds to ${token} over ${against} (${withSign(frame.contrast.value)}): ${direct.join(", ")}${
    top.length ? `; through others: ${top.join(", ")}` : ""
  }`;
  const what = `${token} over ${state.against === "mean" ? "the mean of all tokens" : against}: ${withSign(frame.contrast.value)}`;
  return {
    label,
    what,
    svg: svg(
      width,
      height,
      label,
      lines.join("") + end + nodes.join(""),
      `style="min-width:${Math.round(0.85 * width)}px;max-width:${Math.round(1.4 * width)}px"`,
    ),
  };
}

const shortPart = ({ name, kind }, { cfg }) =>
  name === "E"
    ? "token"
    : name === "P"
      ? "position"
      : cfg.n_layers === 1
        ? kind === "mlp"
          ? "MLP"
          : name.slice(2)
        : name;

// ---- the digits' plane

const MOST_DIGITS = 24;

/** The stream after each sublayer among the digits' directions. */
export function plane(frame, state, target) {
  const { model, entry, layout, run } = frame,
    query = layout.queries[target];
  if (entry.task.base > MOST_DIGITS) return null;
  frame.plane ??= planeOf(model, entry.task.base);
  const { digits, share, project } = frame.plane,
    size = 300,
    middle = size / 2,
    all = streams(entry.cfg);
  frame.track ??= layout.queries.map((at) => all.map(([hook]) => project(run.acts[hook][at])));
  const points = frame.track[target],
    reach = (list) => Math.max(1e-30, ...list.map(([x, y]) => Math.hypot(x, y)).filter(Number.isFinite));
  const outer = reach(digits),
    inner = reach(frame.track.flat()),
    spot = ([x, y], most, radius) => [middle + (radius * x) / most, middle - (radius * y) / most];
  const token = run.answer[target];
  const wedge = share > 0.95 && token >= 0 && token < digits.length ? sector(digits, token, middle, 134) : "";
  const rays = digits.map((digit, d) => {
    const [x, y] = spot(digit, outer, 118),
      chosen = d === token,
      right = d === layout.right[target];
    const away = Math.hypot(x - middle, y - middle) || 1,
      lx = x + (13 * (x - middle)) / away,
      ly = y + (13 * (y - middle)) / away;
    return `<line x1="${middle}" y1="${middle}" x2="${f(x)}" y2="${f(y)}" stroke="${chosen ? BLUE : LINE}" stroke-width="${chosen ? 2 : 1}"/><circle cx="${f(x)}" cy="${f(y)}" r="${
      chosen ? 5 : 3
    }" fill="${chosen ? BLUE : SOFT}"/>${right && !chosen ? `<circle cx="${f(x)}" cy="${f(y)}" r="7" fill="none" stroke="var(--cx-green,#009e73)" stroke-width="2"/>` : ""}${text(
      lx,
      ly + 4,
      tokenText(entry, d),
      chosen ? 'font-weight="700" font-size="14"' : 'font-size="12"',
    )}`;
  });
  const others = frame.track
    .flatMap((track, other) => (other === target ? [] : [spot(track[track.length - 1], inner, 100)]))
    .map(([x, y]) => `<circle cx="${f(x)}" cy="${f(y)}" r="2" fill="${SOFT}" fill-opacity="0.5"/>`);
  const at = points.map((point) => spot(point, inner, 100));
  const path = at.map(([x, y], i) =>
    i
      ? `<line x1="${f(at[i - 1][0])}" y1="${f(at[i - 1][1])}" x2="${f(x)}" y2="${f(y)}" stroke="${VERMILION}" stroke-width="2" marker-end="url(#cx-head)"/>`
      : "",
  );
  const numbers = at.map(
    ([x, y], i) =>
      `<g><circle cx="${f(x)}" cy="${f(y)}" r="7" fill="${i === at.length - 1 ? VERMILION : PAPER}" stroke="${VERMILION}" stroke-width="1.5"/>${text(
        x,
        y + 3.5,
        String(i + 1),
        `font-size="10" ${i === at.length - 1 ? 'fill="#000" font-weight="700"' : ""}`,
      )}<title>${escaped(all[i][1])}</title></g>`,
  );
  const label = `The stream at ${layout.labels[target]} among the ${digits.length} answers\u2019 directions: ${all
    .map(([, name], i) => `${name} (${number(points[i][0])}, ${number(points[i][1])})`)
    .join(", ")}`;
  const ends = [
    ...digits.map((digit) => spot(digit, outer, 134)),
    ...frame.track.flat().map((point) => spot(point, inner, 112)),
  ]
    .map(([, y]) => y)
    .filter(Number.isFinite);
  const top = Math.max(0, Math.min(middle, ...ends) - 12),
    bottom = Math.min(size, Math.max(middle, ...ends) + 12);
  return {
    label,
    share,
    shaded: Boolean(wedge),
    names: all.map(([, name], i) => `${i + 1} ${name}`).join(", "),
    svg: svg(
      size,
      f(bottom - top),
      label,
      `<defs><marker id="cx-head" viewBox="0 0 8 8" refX="16" refY="4" markerWidth="4.5" markerHeight="4.5" orient="auto"><path d="M0 0L8 4L0 8z" fill="${VERMILION}"/></marker></defs>${`<g transform="translate(0 ${f(-top)})">${wedge}${rays.join("")}${others.join("")}${path.join("")}${numbers.join("")}</g>`}`,
    ),
  };
}

/** The directions of the plane in which a digit wins, its product with them being the largest: a cone, or nothing. */
function sector(digits, token, middle, radius) {
  const STEPS = 720;
  const point = (step) => [Math.cos((2 * Math.PI * step) / STEPS), Math.sin((2 * Math.PI * step) / STEPS)];
  const wins = (step) => {
    const [cos, sin] = point(step);
    const products = digits.map(([x, y]) => x * cos + y * sin);
    return products.indexOf(Math.max(...products)) === token;
  };
  const all = [...Array(STEPS).keys()],
    first = all.find((step) => wins(step) && !wins(step - 1));
  if (first === undefined) return "";
  const inside = all.map((step) => step + first).filter(wins);
  const rim = inside.map((step) =>
    point(step)
      .map((x, axis) => f(middle + (axis ? -1 : 1) * radius * x))
      .join(" "),
  );
  return `<path d="M${middle} ${middle}L${rim.join("L")}z" fill="${BLUE}" fill-opacity="0.14"/>`;
}

/** Several drawings under each other, as a file that stands by itself: the theme's colours are written out. */
export function svgFile(drawings, root) {
  const probe = root.appendChild(document.createElement("span")),
    colours = {};
  for (const name of [
    "--cx-ink",
    "--cx-soft",
    "--cx-line",
    "--cx-blue",
    "--cx-vermilion",
    "--cx-orange",
    "--cx-green",
    "--cx-paper",
  ]) {
    probe.style.color = `var(${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  let y = 8,
    width = 0;
  const placed = drawings.map(({ title, svg: body }) => {
    const [, w, h] = /viewBox="0 0 ([\d.]+) ([\d.]+)"/.exec(body).map(Number);
    const part = `<text x="8" y="${y + 14}" font-size="13" font-weight="600" fill="${INK}">${escaped(title)}</text>${body.replace(
      "<svg ",
      `<svg x="8" y="${y + 22}" `,
    )}`;
    y += h + 40;
    width = Math.max(width, w + 16, 16 + 7.2 * title.length);
    return part;
  });
  const whole = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${y}" viewBox="0 0 ${width} ${y}" font-family="Inter,Helvetica,Arial,sans-serif"><rect width="100%" height="100%" fill="${PAPER}"/>${placed.join("")}</svg>`;
  return whole
    .replace(/var\((--cx-\w+),(#\w+)\)/g, (_, name, or) => colours[name] ?? or)
    .replace(/ data-arcs tabindex="0"/g, "");
}

/** Everything of a step as data. */
export function stepData(frame, target) {
  const { entry, layout, run, given, contrast } = frame,
    query = layout.queries[target];
  const acts = Object.fromEntries(Object.entries(run.acts).map(([hook, positions]) => [hook, plain(positions[query])]));
  return {
    target: layout.labels[target],
    position: query,
    token: run.answer[target],
    right: layout.right[target],
    logits: [...run.logits[target]],
    contrast: contrast && { against: contrast.against, value: contrast.value },
    contributions: given && {
      kind: given.kind,
      parts: Object.fromEntries(given.parts.map(({ name, value }) => [name, value])),
      biases: given.biases,
      edges: given.edges,
    },
    activations: acts,
    components: writers(frame.model).map(({ name }) => name),
    tokens: run.tokens,
    vocabulary: entry.vocabulary,
  };
}

const plain = (x) => (typeof x === "number" ? (Number.isFinite(x) ? x : null) : Array.from(x, plain));
