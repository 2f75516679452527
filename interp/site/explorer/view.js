// The explorer's view: draws frames (see frames.py), of one model or of two that move together by answer digit.
//
// mount(root, start, host) builds it. A host answers questions {problem, method, ablated: a list a model} through
// ask(question, reply), with {frames} or {error}; the kernel is one (render, at the end), recorded frames another
// (mountAll). Everything is plain HTML, so that it is drawn in a few milliseconds and read by screen readers.

const BLUE = [0, 114, 178], VERMILION = [213, 94, 0]; // as interp/figures/theme.py

// ---- text and colours

const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

/** Three digits, or what is left of them behind three decimals; "\u22480" where nothing is left. */
function number(x) {
  if (x === null || x === undefined) return "not finite";
  const size = Math.abs(x);
  if (x !== 0 && size < 0.0005) return "\u22480";
  if (size >= 1e5) return x.toExponential(1).replace("-", "\u2212");
  const decimals = x === 0 || size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return x.toFixed(decimals).replace("-", "\u2212");
}

/** Two digits, for small cells. */
const shortNumber = (x) => (x !== null && x !== 0 && Math.abs(x) < 10
  ? x.toFixed(Math.abs(x) < 1 ? 2 : 1).replace("-", "\u2212") : number(x));

const withSign = (x) => (x >= 0.0005 ? "+" : "") + number(x);

const mixed = (colour, share) => `rgb(${colour.map((c) => Math.round(255 + (c - 255) * share)).join(" ")})`;

/** Background and ink for a share of 0 to 1. */
const fill = (share) => `background:${mixed(BLUE, share)};color:${share > 0.6 ? "#fff" : "#222"}`;

/** The same for a signed number: blue above zero, vermilion below, white at zero. */
function signedFill(x, most) {
  const share = x === null || !most ? 0 : Math.min(1, Math.abs(x) / most);
  const ink = (x > 0 && share > 0.6) || share > 0.85 ? "#fff" : "#222";
  return `background:${mixed(x < 0 ? VERMILION : BLUE, share)};color:${ink}`;
}

const largest = (values) => values.reduce((most, x) => Math.max(most, Math.abs(x ?? 0)), 0);

function softmax(logits) {
  if (logits.some((x) => x === null)) return logits.map(() => null);
  const top = Math.max(...logits), weights = logits.map((x) => Math.exp(x - top));
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((w) => w / total);
}

const probability = (p) => (p === null ? "not finite" : p > 0.9995 ? ">0.999" : p.toFixed(3));

// ---- steps

/** Steps of all models in one order: those of the longer answer, the others where they stand in the shorter. */
function mergedSteps(frames) {
  const order = frames.map((_, i) => i).sort((i, j) => frames[j].steps.length - frames[i].steps.length);
  for (const frame of frames) for (const step of frame.steps) Object.assign(step, step.facts);
  const keys = frames[order[0]].steps.map((step) => step.key);
  for (const i of order.slice(1)) {
    frames[i].steps.forEach((step, at) => {
      if (!keys.includes(step.key)) keys.splice(at ? keys.indexOf(frames[i].steps[at - 1].key) + 1 : 0, 0, step.key);
    });
  }
  return keys.map((key) => {
    const each = frames.map((frame) => frame.steps.find((step) => step.key === key));
    return { key, each, label: each.find((step) => step).label };
  });
}

const tokenText = (model, token) => (token < 0 ? "?" : model.vocabulary[token]);

/** What a target's token is called: models without a token for the end of an answer use some digit for it. */
const targetText = (model, step, token) =>
  step.key === "EOS" && token === step.right ? "end" : tokenText(model, token);

// ---- the parts of a model's panel

function verdict(model, frame, letter) {
  const right = frame.answer === frame.right;
  const whole = frame.answer === frame.whole ? "" : `; the whole model answers ${escaped(frame.whole)}`;
  const without = frame.ablated.length ? `, without ${frame.ablated.join(", ")} (${frame.method})` : "";
  const said = right ? "right" : `wrong: it is ${escaped(frame.right)}`;
  return `<p class="cx-verdict">${letter}<b>${escaped(model.name)}</b>${without}: ${escaped(frame.problem)} =
    <b class="${right ? "cx-right" : "cx-wrong"}">${escaped(frame.answer)}</b>, ${said}${whole}.</p>`;
}

function tokenLine(model, frame, step) {
  const tokens = frame.tokens.map((token, at) => {
    const kind = at === step.query ? "cx-query" : at > step.query ? "cx-later" : "";
    return `<span class="${kind}" title="${escaped(frame.labels[at])}, position ${at}">${escaped(
      tokenText(model, token))}</span>`;
  });
  return `<p class="cx-tokens"><span class="cx-small">reads</span> ${tokens.join("")}</p>`;
}

/** The tokens up to the query, each number in a line with its digits by place value, coloured by attention. */
function attention(model, frame, step, head, columns) {
  const row = step.pattern[head];
  const cell = (at) => {
    if (at === undefined || at < 0) return "<i></i>";
    const text = escaped(tokenText(model, frame.tokens[at]));
    if (at > step.query) return '<i class="cx-later">\u00b7</i>';
    const name = escaped(frame.labels[at]), share = row[at];
    const here = at === step.query ? " class='cx-query'" : "";
    return `<i${here} style="${fill(share)}" title="${name} = ${text}: attention ${share}">${text}</i>`;
  };
  const places = [...Array(columns).keys()];
  if (!model.leftToRight) places.reverse();
  return frame.lines.map((line) =>
    `<span class="cx-line" style="--columns:${columns}"><em>${escaped(line.label)}</em>${places
      .map((place) => cell(line.cells[place])).join("")}${cell(line.extra[0])}</span>`).join("");
}

function looksAt(frame, row) {
  const best = row.map((share, at) => [share, at]).sort((x, y) => y[0] - x[0]).slice(0, 4);
  return best.filter(([share]) => share >= 0.05).map(([share, at]) => `${frame.labels[at]} ${share}`).join(", ");
}

/** A button that ablates one component. */
function ablatable(state, i, name, kind, spoken, body) {
  const off = state.frames[i].ablated.includes(name), can = state.host.canAblate(i, name);
  const title = can ? (off ? `Put ${name} back` : `Ablate ${name}`) : `${name} was not recorded ablated`;
  return `<button type="button" class="${kind}${off ? " cx-off" : ""}" data-model="${i}" data-ablate="${name}"
    aria-pressed="${off}" ${can ? "" : 'aria-disabled="true"'} title="${title}"
    aria-label="${escaped(`${name}${off ? ", ablated" : ""}: ${spoken}. ${title}.`)}">${body}</button>`;
}

function heads(state, i, step) {
  const model = state.models[i], frame = state.frames[i];
  const columns = Math.max(...frame.lines.map((line) => line.cells.length));
  const cards = model.heads.map((name, head) => {
    const write = step.headWrites ? step.headWrites[head] : undefined;
    const writes = write === undefined ? "" : `<span class="cx-write">${withSign(write)}</span>`;
    const spoken = `looks at ${looksAt(frame, step.pattern[head]) || "nothing in particular"}` +
      (write === undefined ? "" : `; writes ${withSign(write)} to the chosen logit`);
    const looks = `<small>${escaped(looksAt(frame, step.pattern[head]))}</small>`;
    const body = `<span class="cx-head-title"><b>${name}</b>${looks}${writes}</span>${attention(model, frame, step, head, columns)}`;
    return ablatable(state, i, name, "cx-head", spoken, body);
  });
  const few = model.heads.length === 1 ? "100%" : `min(100%, ${columns * 17 + 60}px)`;
  const from = escaped(frame.labels[step.query]);
  const arrow = step.headWrites ? "; \u2192 write to the chosen logit" : "";
  return `<section><p class="cx-what">Attention <small>from ${from} (position ${step.query}), digits by place
    value${arrow}</small></p><div class="cx-heads" style="--card:${few}">${cards.join("")}</div></section>`;
}

function units(state, i, step) {
  const model = state.models[i], frame = state.frames[i];
  if (!model.units) return "";
  const most = frame.steps.reduce((top, other) => Math.max(top, largest(other.activations)), 0);
  const rows = step.units.map((unit, at) => {
    const name = `L${Math.floor(unit / model.unitsPerLayer)}U${unit % model.unitsPerLayer}`;
    const x = step.activations[at], write = step.unitWrites ? step.unitWrites[at] : undefined;
    const width = x === null || !most ? 0 : (50 * Math.min(1, Math.abs(x) / most)).toFixed(1);
    const side = x < 0 ? "right:50%" : "left:50%";
    const colour = x < 0 ? "cx-negative" : "cx-positive";
    const writes = write === undefined ? "" : `<span class="cx-write">${withSign(write)}</span>`;
    const spoken = `activation ${number(x)}` +
      (write === undefined ? "" : `, writes ${withSign(write)} to the chosen logit`);
    return ablatable(state, i, name, "cx-unit", spoken, `<span>${name}</span>
      <span class="cx-bar"><i class="${colour}" style="${side};width:${width}%"></i></span>
      <span class="cx-number">${number(x)}</span>${writes}`);
  });
  const which = model.fewUnits ? "" : `the 16 of ${model.units} that write most ${
    model.addsUp ? "to the chosen logit" : "to the stream"} here; `;
  return `<section><p class="cx-what">MLP units <small>${which}activation, zero in the middle${
    step.unitWrites ? "; \u2192 write to the chosen logit" : ""}</small></p>
    <div class="cx-units">${rows.join("")}</div></section>`;
}

function wouldAnswer(model, logits) {
  const p = softmax(logits), best = p.indexOf(Math.max(...p));
  const cells = p.map((share, token) =>
    `<i class="${token === best ? "cx-best" : ""}" style="${fill(share ?? 0)}" title="${escaped(
      model.vocabulary[token])}: probability ${probability(share)}">${escaped(shortToken(model, token))}</i>`);
  return `<span class="cx-vocabulary" style="--columns:${p.length}" role="img" aria-label="would answer ${escaped(
    model.vocabulary[best])}, probability ${probability(p[best])}">${cells.join("")}</span>`;
}

const shortToken = (model, token) => model.vocabulary[token].replace(/^<(.).*>$/, "$1");

function stream(state, i, step) {
  const model = state.models[i], frame = state.frames[i];
  const most = largest(frame.steps.flatMap((other) => other.stream.flat()));
  const rows = model.streams.map((name, at) => {
    const values = step.stream[at], logits = at < step.lens.length ? step.lens[at] : step.logits;
    const shown = model.fewDimensions
      ? `<span class="cx-dimensions" style="--columns:${values.length}" role="img" aria-label="values ${values
          .map(number).join(", ")}">${values.map((x, d) =>
            `<i style="${signedFill(x, most)}" title="dimension ${d}: ${number(x)}">${shortNumber(x)}</i>`).join("")}</span>`
      : `<span class="cx-norm"><i style="width:${most ? (100 * (values ?? 0)) / most : 0}%"></i><b>${
          number(values)}</b></span>`;
    return `<div class="cx-stream"><span>${name}</span>${shown}${wouldAnswer(model, logits)}</div>`;
  });
  const what = model.fewDimensions ? `its ${model.dimensions} numbers` : `its length (${model.dimensions} dimensions)`;
  return `<section><p class="cx-what">Residual stream <small>${what}, and what the model would answer from there
    (logit lens)</small></p>${rows.join("")}</section>`;
}

function logits(state, i, step) {
  const model = state.models[i], p = softmax(step.logits);
  const bars = p.map((share, token) => {
    const marks = [token === step.token ? "cx-chosen" : "", token === step.right ? "cx-is-right" : ""].join(" ");
    return `<span class="${marks}" title="${escaped(model.vocabulary[token])}: logit ${number(
      step.logits[token])}, probability ${probability(share)}"><i style="height:${(54 * (share ?? 0)).toFixed(1)}px"></i>
      <b>${escaped(shortToken(model, token))}</b></span>`;
  });
  const order = step.logits.map((_, token) => token).sort((x, y) => step.logits[y] - step.logits[x]);
  const [first, second] = order, behind = step.logits[first] - step.logits[second];
  const wrong = step.token === step.right ? "" : `; right is ${escaped(tokenText(model, step.right))}`;
  const said = step.token < 0 ? "It cannot go on: a logit is not a number, or its positions end here."
    : `chooses ${escaped(tokenText(model, step.token))}, probability ${probability(p[step.token])}${wrong}; next is ${
      escaped(tokenText(model, second))}, ${number(behind)} behind`;
  return `<section><p class="cx-what">Logits <small>${said}</small></p>
    <div class="cx-logits" style="--columns:${p.length}" role="img" aria-label="${said}">${bars.join("")}</div></section>`;
}

function panel(state, i, step) {
  const model = state.models[i], frame = state.frames[i];
  const several = state.models.length > 1;
  const count = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  const size = [count(model.parameters, "parameter"), count(model.layers, "layer"),
    count(model.heads.length, "head"), count(model.units, "unit")].join(", ");
  const letter = several ? `<span class="cx-letter">${"AB"[i]}</span> ` : "";
  const title = `<p class="cx-name" role="heading" aria-level="4">${letter}${escaped(model.name)}
    <small>${size}</small></p>`;
  const body = step ? tokenLine(model, frame, step) + heads(state, i, step) + units(state, i, step) +
    stream(state, i, step) + logits(state, i, step) : "<p>This model writes no such token.</p>";
  return `<article aria-label="${escaped(model.name)}">${title}${body}</article>`;
}

// ---- the whole view

function stepper(state) {
  const several = state.models.length > 1;
  const carries = state.steps.some(({ each }) => each.some((step) => step && step.carry !== null));
  const legend = ["digit", ...(carries ? ["carry in"] : []), ...state.models.map((model, i) =>
    several ? "AB"[i] : "writes"), "right"];
  const cells = state.steps.map(({ each, label }, at) => {
    const known = each.find((step) => step), carry = known.carry;
    const wrote = each.map((step, i) => {
      if (!step) return "<span></span>";
      const kind = step.token !== step.right ? "cx-wrong" : step.token !== step.whole ? "cx-changed" : "";
      return `<span class="${kind}">${escaped(targetText(state.models[i], step, step.token))}</span>`;
    });
    const right = escaped(targetText(state.models[each.indexOf(known)], known, known.right));
    const said = each.map((step, i) => step && `${state.models[i].name} writes ${
      targetText(state.models[i], step, step.token)}`).filter(Boolean).join(", ");
    const here = at === state.at;
    return `<button type="button" data-step="${at}" ${here ? 'aria-current="step"' : ""} tabindex="${here ? 0 : -1}"
      aria-label="${escaped(`${label}: ${said}; right is ${right}`)}"><span class="cx-small">${escaped(label)}</span>${
      carries ? `<span class="cx-carry">${carry ? carry : ""}</span>` : ""}${wrote.join("")}
      <span class="cx-target">${right}</span></button>`;
  });
  return `<div class="cx-legend" aria-hidden="true">${legend.map((word) => `<span>${word}</span>`).join("")}</div>
    <div class="cx-steps" role="group" aria-label="Tokens of the answer, in the order in which they are written">${
    cells.join("")}</div>`;
}

function skeleton(start, host) {
  const options = start.examples.map(([problem, shows]) =>
    `<option value="${escaped(problem)}">${escaped(problem)}${shows && !host.types ? `: ${escaped(shows)}` : ""}</option>`);
  const chooser = host.types
    ? `<label>Problem <input type="text" value="${escaped(start.problem)}" autocomplete="off" spellcheck="false"
        data-problem></label><button type="submit">Ask</button>
        <label>or <select data-example aria-label="an example"><option value="">an example</option>${
        options.join("")}</select></label>`
    : `<label>Problem <select data-example>${options.join("")}</select></label>`;
  const methods = start.methods.map((method) =>
    `<option ${method === start.method ? "selected" : ""}>${method}</option>`);
  return `<form class="cx-controls">${chooser}
      <label ${methods.length < 2 ? "hidden" : ""}>Ablation <select data-method>${methods.join("")}</select></label>
      <button type="button" data-reset>Put all back</button></form>
    <p class="cx-alert" role="alert" hidden></p><div class="cx-verdicts" aria-live="polite"></div>
    <div class="cx-stepper"></div>
    <div class="cx-walk"><button type="button" data-walk="-1">\u2190 previous</button>
      <button type="button" data-walk="1">next \u2192</button><p class="cx-truth" aria-live="polite"></p></div>
    <div class="cx-panels"></div>
    <p class="cx-help">Left and right step through the answer in the order in which it is written. Click a head or a unit, or press Enter on it, to ablate it${host.hint}. Shares of attention and probability: white 0, blue 1;
    signed numbers: blue above zero, vermilion below.</p>`;
}

export function mount(root, start, host) {
  const state = { ...start, host, at: 0, asked: 0 };
  const find = (selector) => root.querySelector(selector);
  root.classList.add("cx");
  root.tabIndex = -1;
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take Enter for its own
  root.innerHTML = skeleton(start, host);

  function draw() {
    const focused = root.contains(document.activeElement) ? document.activeElement.dataset : {};
    const step = state.steps[state.at];
    find(".cx-verdicts").innerHTML = state.models.map((model, i) => verdict(model, state.frames[i],
      state.models.length > 1 ? `<span class="cx-letter">${"AB"[i]}</span> ` : "")).join("");
    find(".cx-stepper").innerHTML = stepper(state);
    find(".cx-truth").textContent = `${step.label}: ${step.each.find((one) => one).truth}`;
    find(".cx-panels").innerHTML = state.models.map((_, i) => panel(state, i, step.each[i])).join("");
    find("[data-walk='-1']").disabled = state.at === 0;
    find("[data-walk='1']").disabled = state.at === state.steps.length - 1;
    find("[data-reset]").disabled = !state.frames.some((frame) => frame.ablated.length);
    if (focused.ablate) find(`[data-model="${focused.model}"][data-ablate="${focused.ablate}"]`)?.focus();
    else if (focused.step) find(`[data-step="${state.at}"]`)?.focus();
    else if (focused.walk && document.activeElement.disabled) find("[data-step][tabindex='0']")?.focus();
  }

  function show(frames) {
    const key = state.steps?.[state.at].key;
    state.frames = frames;
    state.steps = mergedSteps(frames);
    state.at = Math.max(0, state.steps.findIndex((step) => step.key === key));
    draw();
  }

  function ask(change) {
    const ablated = state.frames.map((frame) => frame.ablated);
    const question = { problem: state.frames[0].problem, method: state.method, ablated, ...change };
    const asked = ++state.asked;
    const waiting = setTimeout(() => root.setAttribute("aria-busy", "true"), 150);
    host.ask(question, (reply) => {
      if (asked !== state.asked) return; // a later question overtook it
      clearTimeout(waiting);
      root.removeAttribute("aria-busy");
      const alert = find(".cx-alert"), typed = find("[data-problem]");
      alert.hidden = !reply.error;
      alert.textContent = reply.error ?? "";
      if (typed) typed.setAttribute("aria-invalid", String(Boolean(reply.error)));
      if (reply.error) return;
      state.method = question.method;
      if (typed && change.problem) typed.value = reply.frames[0].problem;
      show(reply.frames);
    });
  }

  function walk(by) {
    const at = Math.min(state.steps.length - 1, Math.max(0, state.at + by));
    if (at !== state.at) { state.at = at; draw(); }
  }

  root.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button || button.disabled || button.getAttribute("aria-disabled") === "true") return;
    if (button.dataset.step) { state.at = Number(button.dataset.step); draw(); }
    if (button.dataset.walk) walk(Number(button.dataset.walk));
    if ("reset" in button.dataset) ask({ ablated: state.frames.map(() => []) });
    if (button.dataset.ablate) {
      const i = Number(button.dataset.model), name = button.dataset.ablate;
      const ablated = state.frames.map((frame) => frame.ablated);
      const toggled = ablated[i].includes(name) ? ablated[i].filter((other) => other !== name) : [...ablated[i], name];
      ablated[i] = host.canShow(i, toggled) ? toggled : [name];
      ask({ ablated });
    }
  });
  const submit = () => ask({ problem: find("[data-problem]")?.value ?? state.frames[0].problem });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("[data-problem]")) { // forms in JupyterLab do not do it themselves
      event.preventDefault();
      event.stopPropagation();
      submit();
      return;
    }
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    event.stopPropagation();
    walk(by);
  });
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  find("[data-example]").addEventListener("change", (event) => {
    const problem = event.target.value;
    if (host.types) event.target.value = "";
    if (problem) ask({ problem });
  });
  find("[data-method]").addEventListener("change", (event) => ask({ method: event.target.value }));

  show(start.frames);
  return state;
}

// ---- hosts

/** In Jupyter (anywidget): questions go to the kernel as messages. */
function render({ model, el }) {
  const waiting = new Map(), view = Math.random().toString(36).slice(2);
  let asked = 0;
  const receive = (reply) => {
    waiting.get(reply.id)?.(reply);
    waiting.delete(reply.id);
  };
  model.on("msg:custom", receive);
  mount(el, model.get("start"), {
    types: true,
    hint: ", and the model answers again",
    canAblate: () => true,
    canShow: () => true,
    ask(question, reply) {
      const id = `${view}-${++asked}`;
      waiting.clear();
      waiting.set(id, reply);
      model.send({ id, ...question });
    },
  });
  return () => model.off("msg:custom", receive);
}

/** What static.py packed, with its references followed. */
function unpacked({ pool, keys, value }) {
  const known = [];
  const follow = (part) => {
    if (part === null || typeof part !== "object") return part;
    if (Array.isArray(part)) return part.map(follow);
    if ("$" in part) return (known[part.$] ??= follow(pool[part.$]));
    if ("#" in part) return Object.fromEntries(keys[part["#"][0]].map((key, at) => [key, follow(part["#"][at + 1])]));
    return Object.fromEntries(Object.entries(part).map(([key, item]) => [key, follow(item)]));
  };
  return follow(value);
}

/** On a page: every view with recorded frames. */
export function mountAll(page) {
  for (const root of page.querySelectorAll("[data-explorer]:not([data-mounted])")) {
    root.dataset.mounted = "";
    const start = unpacked(JSON.parse(root.querySelector("script[type='application/json']").textContent));
    const frameOf = (i, problem, method, ablated) =>
      start.recorded[i][[problem, ablated.length ? method : "", [...ablated].sort().join(",")].join("|")];
    const has = (i, ablated) => Boolean(frameOf(i, start.problem, start.methods[0], ablated));
    const every = (i) => start.models[i].heads.length + start.models[i].units; // and how many are recorded, alone
    const alone = (i) => new Set(Object.keys(start.recorded[i]).map((key) => key.split("|")[2])
      .filter((name) => name && !name.includes(",")));
    const combined = start.models.every((_, i) => every(i) < 2 || Object.keys(start.recorded[i]).some((key) =>
      key.includes(",")));
    const missing = start.models.some((_, i) => alone(i).size < every(i));
    mount(root, { ...start, frames: start.models.map((_, i) => frameOf(i, start.problem, start.method, [])) }, {
      types: false,
      hint: (combined ? "" : ", one at a time where a model has many") +
        (missing ? "; those with a dotted frame were not recorded ablated" : ""),
      canAblate: (i, name) => has(i, [name]),
      canShow: has,
      ask: ({ problem, method, ablated }, reply) =>
        reply({ frames: start.models.map((_, i) => frameOf(i, problem, method, ablated[i])) }),
    });
  }
}

export default { render };
