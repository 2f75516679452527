// The parts of the view that are HTML: text, attention by place value, units, streams and logits.

import { finalNorm, softmax, unembed } from "./forward.js";

// ---- text and colours

export const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

/** Three digits, or what is left of them after three decimals; "\u22480" where nothing is left. */
export function number(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "not finite";
  const size = Math.abs(x);
  if (x !== 0 && size < 0.0005) return "\u22480";
  if (size >= 1e5) return x.toExponential(1).replace("-", "\u2212");
  const decimals = x === 0 || size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return x.toFixed(decimals).replace("-", "\u2212");
}

/** Two digits, for small cells; one decimal for the smallest ones. */
const shortNumber = (x, decimals = 2) =>
  decimals < 2 && Math.abs(x) < 0.05
    ? "0"
    : Number.isFinite(x) && x !== 0 && Math.abs(x) < 10
    ? x.toFixed(Math.abs(x) < 1 ? decimals : 1).replace("-", "\u2212")
    : number(x);

export const withSign = (x) => (x >= 0.0005 ? "+" : "") + number(x);

/** Background for a share of 0 to 1 of a colour, the paper's where there is none, and ink with a contrast of 4.5. */
const fill = (share, colour = "blue") => {
  const light = share <= 0.72 ? "var(--cx-ink)" : share > 0.93 && colour === "blue" ? "#fff" : "#000",
    ink = `color:light-dark(${light},${share <= 0.72 ? "#fff" : "#000"})`;
  return `background:color-mix(in srgb,var(--cx-${colour}) ${(100 * share).toFixed(1)}%,var(--cx-cell))${share > 0.5 ? `;${ink}` : ""}`;
};

/** The same for a signed number: blue above zero, vermilion below. */
const signedFill = (x, most) =>
  fill(Number.isFinite(x) && most ? Math.min(1, Math.abs(x) / most) : 0, x < 0 ? "vermilion" : "blue");

const largest = (values) => values.reduce((most, x) => Math.max(most, Math.abs(x || 0)), 0);

const probability = (p) =>
  !Number.isFinite(p) ? "not finite" : p > 0.9995 ? ">0.999" : p < 0.0005 ? "<0.001" : p.toFixed(3);

/** How dark a share of attention is: itself, or its decade between 0.0001 and 1. */
export const shade = (share, log) => (log ? Math.min(1, Math.max(0, 1 + Math.log10(share) / 4)) : share);

const shareText = (share) =>
  share >= 0.0995 || share === 0
    ? share.toFixed(2)
    : share >= 0.0001
      ? String(Number(share.toPrecision(2)))
      : "<0.0001";

export const tokenText = (entry, token) => (token < 0 ? "?" : (entry.vocabulary[token] ?? "?"));

const shortToken = (entry, token) => tokenText(entry, token).replace(/^<(.).*>$/, "$1");

/** What a target's token is called: models without a token for the end of an answer use some digit for it. */
export const targetText = ({ entry, layout }, target, token) =>
  layout.keys[target] === "EOS" && token === layout.right[target] ? "end" : tokenText(entry, token);

const counted = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

/** What a part is called in sentences. */
export function partName(name) {
  const [, layer, kind, index] = /^L(\d+)([HN]|\.attn|\.mlp|)(.*)$/.exec(name) ?? [];
  if (name === "E") return "token embedding";
  if (name === "P") return "position embedding";
  if (kind === ".attn") return `attention ${layer}`;
  if (kind === ".mlp") return `MLP ${layer}`;
  return (
    { H: `head ${name}`, N: `neuron ${name}` }[kind] ??
    `stream ${{ pre: "before", mid: "within", post: "after" }[index.trim()]} layer ${layer}`
  );
}

// ---- a model's panel

/** Heads, units and streams of a model, and what was changed about them. */
export const headNames = ({ n_layers: L, n_heads: H }) =>
  [...Array(L * H).keys()].map((i) => `L${Math.floor(i / H)}H${i % H}`);

export function editText(edits, source, method) {
  const each = Object.entries(edits),
    off = each.filter(([, e]) => e.scale === 0 && !e.patch).map(([name]) => name);
  const rest = each
    .filter(([, e]) => e.scale !== 0 || e.patch)
    .map(
      ([name, e]) =>
        `${name}${e.patch ? ` from ${source}${Array.isArray(e.patch) ? ` at position ${e.patch.join(", ")}` : ""}` : ""}${
          e.scale === 1 ? "" : ` \u00d7 ${e.scale}`
        }`,
    );
  return (
    (off.length ? `, without ${off.join(", ")} (${method})` : "") + (rest.length ? `, with ${rest.join(", ")}` : "")
  );
}

export function verdict(frame, letter, { second, method }) {
  const { entry, layout, answer, right, whole, good } = frame;
  const forced = frame.forced.length
    ? `, after ${frame.forced.map(([label, text]) => `${label} was changed to ${text}`).join(", ")}`
    : "";
  const other = answer === whole ? "" : `; the whole model answers ${escaped(whole)}`;
  const when =
    entry.steps.length > 1 && frame.snapshot < entry.steps.length - 1
      ? ` at training step ${entry.steps[frame.snapshot].toLocaleString("en")}`
      : "";
  return `<p class="cx-verdict">${letter}<b>${escaped(entry.name)}</b>${when}${escaped(editText(frame.edits, second, method))}${escaped(
    forced,
  )}: ${escaped(layout.problem)} = <b class="${good ? "cx-right" : "cx-wrong"}">${escaped(answer)}</b>, ${
    good ? "right" : answer === right ? "wrong: the number is right, and another token is not" : `wrong: it is ${escaped(right)}`
  }${other}.</p>`;
}

/** The columns of all numbers, and what stands between columns, the highest first; and the most delimiters of a number. */
function placesOf({ entry, layout: { lines } }) {
  const places = [...new Set(lines.flatMap(({ cells }) => Object.keys(cells).map(Number)))].sort((a, b) => b - a);
  const upwards = entry.task.kind === "parity" || entry.task.numbers === false;
  return [upwards ? places.reverse() : places, Math.max(...lines.map(({ extra }) => extra.length))];
}

/** The tokens up to the query, each number in a line with its digits by place value, coloured by attention. */
function attention({ entry, layout, run }, query, row, [places, extras], log) {
  const cell = (at) => {
    if (at === undefined) return "<i></i>";
    const text = escaped(shortToken(entry, run.tokens[at]));
    if (at > query) return '<i class="cx-later">\u00b7</i>';
    const here = at === query ? " class='cx-query'" : "";
    return `<i${here} data-at="${at}" style="${fill(shade(row[at], log))}" title="${escaped(layout.roles[at].label)} = ${text}: attention ${shareText(
      row[at],
    )}">${text}</i>`;
  };
  return layout.lines
    .map(
      (line) =>
        `<span class="cx-line" style="--columns:${places.length + extras}"><em>${escaped(line.label)}</em>${places
          .map((place) => cell(line.cells[place]))
          .join("")}${[...Array(extras).keys()].map((i) => cell(line.extra[i])).join("")}</span>`,
    )
    .join("");
}

function looksAt({ layout }, row) {
  const best = [...row]
    .map((share, at) => [share, at])
    .sort((x, y) => y[0] - x[0])
    .slice(0, 4);
  return best
    .filter(([share]) => share >= 0.03)
    .map(([share, at]) => `${layout.roles[at].label} ${shareText(share)}`)
    .join(", ");
}

/** A button that removes or patches one component, or puts it back. */
function editable(frame, state, name, kind, spoken, body) {
  const edit = frame.edits[name],
    verb = state.second && state.click === "patch" ? "Patch" : "Remove";
  const title = edit ? `Put ${name} back` : `${verb} ${name}`;
  const mark = edit ? (edit.patch ? " cx-patched" : edit.scale === 0 ? " cx-off" : " cx-scaled") : "";
  const said = edit ? (edit.patch ? ", patched" : `, times ${edit.scale}`) : "";
  return `<button type="button" class="${kind}${mark}" data-model="${frame.i}" data-edit="${name}"
    aria-pressed="${Boolean(edit)}" title="${title}" aria-label="${escaped(`${name}${said}: ${spoken}. ${title}.`)}">${body}</button>`;
}

const writesText = (value, state) =>
  `${withSign(value)} to ${state.against === "mean" ? "the chosen logit over the mean" : "the lead over the runner-up"}`;

export function heads(frame, state, target) {
  const { entry, layout, run, given } = frame,
    { cfg } = entry,
    query = layout.queries[target];
  const places = placesOf(frame),
    columns = places[0].length,
    names = headNames(cfg);
  const value = Object.fromEntries((given?.parts ?? []).map((part) => [part.name, part.value])),
    grid = names.length > 4 || cfg.n_layers > 1;
  const cards = names.map((name, at) => {
    const row = run.acts[`blocks.${Math.floor(at / cfg.n_heads)}.attn.hook_pattern`][query][at % cfg.n_heads],
      looks = looksAt(frame, row);
    const writes = value[name] === undefined ? "" : `<span class="cx-write">${withSign(value[name])}</span>`;
    const spoken = `looks at ${looks || "nothing in particular"}${value[name] === undefined ? "" : `; ${writesText(value[name], state)}`}`;
    const body = `<span class="cx-head-title"><b>${name}</b>${grid ? "" : `<small>${escaped(looks)}</small>`}${writes}</span>${attention(
      frame,
      query,
      row,
      places,
      state.log,
    )}`;
    return editable(frame, state, name, "cx-head", spoken, body);
  });
  const few = cfg.n_heads === 1 && !grid,
    wide = columns > 12 ? 1 : columns > 5 ? 2 : cfg.n_heads;
  const from = escaped(layout.roles[query].label);
  const what = given
    ? `; \u2192 ${given.kind === "direct" ? "direct write" : "loss of the lead when removed here"}`
    : "";
  return `<section class="cx-wide"><p class="cx-what">Attention <small>from ${from} (position ${query}), ${
    state.log ? "log scale from 0.0001 to 1, " : ""
  }digits by place value${grid ? "; a row per layer" : ""}${what}</small></p>
    <div class="cx-heads" style="--heads:${few ? 1 : cfg.n_heads};--narrow:${Math.min(cfg.n_heads, wide, 4)}">${cards.join("")}</div></section>`;
}

/** The units to show of many: those that write most, and those that are edited. */
function shownUnits(frame, activations, writes) {
  const n = activations.length;
  if (n <= 16) return [...Array(n).keys()];
  const { d_mlp: M, d_model: D } = frame.entry.cfg,
    W = frame.model.weights;
  const length = (unit) =>
    Math.hypot(...W[`blocks.${Math.floor(unit / M)}.mlp.W_out`].subarray((unit % M) * D, ((unit % M) + 1) * D));
  const size = writes ? writes.map(Math.abs) : activations.map((x, unit) => Math.abs(x) * length(unit));
  const best = [...Array(n).keys()].sort((a, b) => size[b] - size[a]).slice(0, 16);
  const edited = Object.keys(frame.edits)
    .map((name) => /^L(\d+)N(\d+)$/.exec(name))
    .filter(Boolean)
    .map(([, l, u]) => l * M + Number(u));
  return [...best, ...edited.filter((unit) => !best.includes(unit))];
}

const activationsAt = ({ entry: { cfg }, run }, query) =>
  [...Array(cfg.n_layers).keys()].flatMap((layer) => [...run.acts[`blocks.${layer}.mlp.hook_post`][query]]);

export function units(frame, state, target) {
  const { entry, layout } = frame,
    M = entry.cfg.d_mlp;
  if (!M) return "";
  const values = activationsAt(frame, layout.queries[target]),
    writes = frame.unitWrites;
  const most = largest(layout.queries.flatMap((query) => activationsAt(frame, query)));
  const rows = shownUnits(frame, values, writes).map((unit) => {
    const name = `L${Math.floor(unit / M)}N${unit % M}`,
      x = values[unit];
    const width = most ? (50 * Math.min(1, Math.abs(x) / most)).toFixed(1) : 0;
    const wrote = writes ? `<span class="cx-write">${withSign(writes[unit])}</span>` : "";
    return editable(
      frame,
      state,
      name,
      "cx-unit",
      `activation ${number(x)}${writes ? `; ${writesText(writes[unit], state)}` : ""}`,
      `<span>${name}</span><span class="cx-bar"><i class="${x < 0 ? "cx-negative" : "cx-positive"}" style="${
        x < 0 ? "right:50%" : "left:50%"
      };width:${width}%"></i></span><span class="cx-number">${number(x)}</span>${wrote}`,
    );
  });
  const which = values.length <= 16 ? "" : `the 16 of ${values.length.toLocaleString("en")} that write most here; `;
  return `<section><p class="cx-what">MLP neurons <small>${which}activation, zero in the middle${
    writes ? "; \u2192 direct write" : ""
  }</small></p><div class="cx-units">${rows.join("")}</div></section>`;
}

/** The residual streams in order of depth: [hook, what it is called]. */
export function streams({ n_layers: L, d_mlp: M }) {
  const found = [["blocks.0.hook_resid_pre", "embeddings"]];
  for (let layer = 0; layer < L; layer++) {
    if (M) found.push([`blocks.${layer}.hook_resid_mid`, `after attention${L > 1 ? ` ${layer}` : ""}`]);
    found.push([`blocks.${layer}.hook_resid_post`, `after ${M ? "MLP" : "attention"}${L > 1 ? ` ${layer}` : ""}`]);
  }
  return found;
}

/** Tokens to draw: all of up to 24, else the likeliest and the right one, in order. */
function candidates(p, right = -1) {
  const all = [...p.keys()];
  if (all.length <= 24) return all;
  const likely = [...all].sort((a, b) => p[b] - p[a]).slice(0, 11);
  return all.filter((token) => likely.includes(token) || token === right);
}

function wouldAnswer(entry, logits) {
  const p = softmax(logits),
    best = p.indexOf(Math.max(...p)),
    shown = candidates(p);
  const cells = shown.map(
    (token) =>
      `<i class="${token === best ? "cx-best" : ""}" style="${fill(p[token] || 0)}" title="${escaped(
        tokenText(entry, token),
      )}: probability ${probability(p[token])}">${escaped(shortToken(entry, token))}</i>`,
  );
  return `<span class="cx-vocabulary" style="--columns:${shown.length}" role="img" aria-label="would answer ${escaped(
    tokenText(entry, best),
  )}, probability ${probability(p[best])}">${cells.join("")}</span>`;
}

export function stream(frame, state, target) {
  const { entry, layout, run, model } = frame,
    few = entry.cfg.d_model <= 16,
    query = layout.queries[target];
  const length = (x) => Math.sqrt(x.reduce((sum, value) => sum + value * value, 0));
  const all = streams(entry.cfg),
    most = largest(
      all.flatMap(([hook]) =>
        layout.queries.flatMap((at) => (few ? [...run.acts[hook][at]] : [length(run.acts[hook][at])])),
      ),
    );
  const rows = all.map(([hook, name]) => {
    const x = [...run.acts[hook][query]];
    const shown = few
      ? `<span class="cx-dimensions" style="--columns:${x.length}" role="img" aria-label="values ${x.map(number).join(", ")}">${x
          .map(
            (value, d) =>
              `<i style="${signedFill(value, most)}" title="dimension ${d}: ${number(value)}">${shortNumber(value, x.length > 6 ? 1 : 2)}</i>`,
          )
          .join("")}</span>`
      : `<span class="cx-norm"><i style="width:${most ? (100 * length(x)) / most : 0}%"></i><b>${number(length(x))}</b></span>`;
    return `<div class="cx-stream${few && x.length > 5 ? " cx-tall" : ""}"><span>${name}</span>${shown}${wouldAnswer(entry, unembed(model, finalNorm(model, x).out))}</div>`;
  });
  return `<section><p class="cx-what">Residual stream <small>${few ? `its ${entry.cfg.d_model} numbers` : `its length (${entry.cfg.d_model} dimensions)`},
    and what the model would answer from there (logit lens)</small></p>${rows.join("")}</section>`;
}

export function logits(frame, state, target) {
  const { entry, layout, run } = frame,
    values = [...run.logits[target]],
    p = softmax(values),
    token = run.answer[target],
    right = layout.right[target];
  const shown = candidates(p, right);
  const bars = shown.map(
    (each) =>
      `<span class="${each === token ? "cx-chosen" : ""} ${each === right ? "cx-is-right" : ""}" title="${escaped(
        tokenText(entry, each),
      )}: logit ${number(values[each])}, probability ${probability(p[each])}"><i style="height:${(
        54 * (p[each] || 0)
      ).toFixed(1)}px"></i><b>${escaped(shortToken(entry, each))}</b></span>`,
  );
  const [, second] = [...values.keys()].sort((x, y) => values[y] - values[x]);
  const wrong = token === right ? "" : `; right is ${escaped(targetText(frame, target, right))}`;
  const said =
    token < 0
      ? "It cannot go on: a logit is not a number, or its positions end here."
      : `chooses ${escaped(tokenText(entry, token))}, probability ${probability(p[token])}${wrong}; runner-up ${escaped(
          tokenText(entry, second),
        )}, ${number(values[token] - values[second])} logits lower`;
  return `<section><p class="cx-what">Logits <small>${said}</small></p><div class="cx-logits" style="--columns:${
    shown.length
  }" role="img" aria-label="${said}">${bars.join("")}</div></section>`;
}

/** The edits of a model as sliders from 0 to 2, and what else can be edited. */
export function editor(frame, state) {
  const { edits, i } = frame;
  const chips = Object.entries(edits).map(
    ([name, edit]) => `<li><b title="${partName(name)}">${name}</b>
    <input type="range" min="0" max="2" step="0.05" value="${edit.scale}" data-scale="${name}" data-model="${i}"
      aria-label="${partName(name)}, times"><output>\u00d7 ${edit.scale}</output>${
        state.second
          ? `<label><input type="checkbox" data-patch="${name}" data-model="${i}" ${edit.patch ? "checked" : ""}> from ${escaped(state.second)}${
              Array.isArray(edit.patch) ? `, position ${edit.patch.join(", ")}` : ""
            }</label>`
          : ""
      }
    <button type="button" data-back="${name}" data-model="${i}" aria-label="Put ${name} back">\u00d7</button></li>`,
  );
  const group = (label, names) =>
    `<optgroup label="${label}">${names
      .filter((name) => !edits[name])
      .map((name) => `<option value="${name}">${name}, ${partName(name)}</option>`)
      .join("")}</optgroup>`;
  const groups = components(frame.entry.cfg).filter(([label, names]) => names.length && (label !== "Neurons" || names.length <= 64));
  return `<ul class="cx-edits">${chips.join("")}<li><select data-add data-model="${i}" aria-label="Scale or patch a component">
    <option value="">Scale or patch \u2026</option>${groups.map(([label, names]) => group(label, names)).join("")}</select></li></ul>`;
}

/** Everything that can be edited, by kind. */
export function components(cfg) {
  const layers = [...Array(cfg.n_layers).keys()];
  return [
    ["Sublayers", layers.flatMap((l) => (cfg.d_mlp ? [`L${l}.attn`, `L${l}.mlp`] : [`L${l}.attn`]))],
    ["Heads", headNames(cfg)],
    ["Neurons", layers.flatMap((l) => [...Array(cfg.d_mlp).keys()].map((u) => `L${l}N${u}`))],
    ["Embeddings", ["standard", "coupled"].includes(cfg.positional_embedding_type) ? ["E", "P"] : ["E"]],
    ["Streams", layers.flatMap((l) => [`L${l} pre`, ...(cfg.d_mlp ? [`L${l} mid`] : []), `L${l} post`])],
  ];
}

/** When in its training a model is shown. */
export const stepText = ({ entry: { steps }, snapshot }) =>
  snapshot === steps.length - 1 ? "trained" : `step ${steps[snapshot].toLocaleString("en")}`;

export function title(frame, several) {
  const { entry, i, snapshot } = frame,
    { cfg } = entry;
  const size = [
    counted(entry.parameters, "parameter"),
    counted(cfg.n_layers, "layer"),
    counted(cfg.n_layers * cfg.n_heads, "head"),
    counted(cfg.n_layers * cfg.d_mlp, "neuron"),
  ].join(", ");
  const last = entry.steps.length - 1,
    when = stepText(frame);
  const slider =
    last < 1
      ? several
        ? '<span class="cx-snapshot cx-none"></span>' // its neighbour may have a slider, and lines are to stand level
        : ""
      : `<label class="cx-snapshot">Training <input type="range" min="0" max="${last}" value="${snapshot}" data-snapshot
    data-model="${i}" aria-valuetext="${when}"><output>${when}</output></label>`;
  return `<div class="cx-title"><p class="cx-name" role="heading" aria-level="4">${several ? `<span class="cx-letter">${"AB"[i]}</span> ` : ""}${escaped(
    entry.name,
  )} <small>${size}</small></p>${slider}</div>`;
}

/** The answer as it is written, a button a token. */
export function stepper(state) {
  const { frames, steps } = state,
    several = frames.length > 1;
  const carries = steps.some(({ carry }) => carry !== null),
    carryName = frames.map(({ entry }) => entry.task.shownName).find(Boolean) ?? "carry in",
    changed = frames.some((frame) => frame.forced.length);
  const names = frames.map((_, i) => (several ? "AB"[i] : "")),
    legend = [
      "digit",
      ...(carries ? [carryName] : []),
      ...names.map((name) => name || "writes"),
      ...(changed ? names.map((name) => `${name} read as`.trim()) : []),
      "right",
    ];
  const cells = steps.map(({ at, label, carry, right }, index) => {
    const wrote = frames.map((frame, i) => {
      if (at[i] < 0) return "<span></span>";
      const token = frame.run.answer[at[i]];
      const kind =
        token !== frame.layout.right[at[i]] ? "cx-wrong" : token !== frame.wholeRun.answer[at[i]] ? "cx-changed" : "";
      return `<span class="${kind}">${escaped(targetText(frame, at[i], token))}</span>`;
    });
    const read = changed
      ? frames.map((frame, i) =>
          at[i] < 0
            ? "<span></span>"
            : `<span class="${
                frame.run.written[at[i]] !== frame.run.answer[at[i]] ? "cx-changed" : "cx-soft"
              }">${escaped(targetText(frame, at[i], frame.run.written[at[i]]))}</span>`,
        )
      : [];
    const said = frames
      .map(
        (frame, i) => at[i] >= 0 && `${frame.entry.name} writes ${targetText(frame, at[i], frame.run.answer[at[i]])}`,
      )
      .filter(Boolean)
      .join(", ");
    const here = index === state.at;
    return `<button type="button" data-step="${index}" ${here ? 'aria-current="step"' : ""} tabindex="${here ? 0 : -1}"
      aria-label="${escaped(`${label}: ${said}; right is ${right}`)}"><span class="cx-small">${escaped(label)}</span>${
        carries ? `<span class="cx-carry">${carry || ""}</span>` : ""
      }${wrote.join("")}${read.join("")}<span class="cx-target">${escaped(right)}</span></button>`;
  });
  return `<div class="cx-legend" aria-hidden="true">${legend.map((word) => `<span>${word}</span>`).join("")}</div>
    <div class="cx-steps" role="group" aria-label="Tokens of the answer, in the order in which they are written">${cells.join("")}</div>`;
}
