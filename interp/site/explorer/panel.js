// The view's frame of controls, and a model's panel in it.

import { arcs, flow, plane } from "./drawings.js";
import { look } from "./frames.js";
import { escaped, heads, logits, stream, units } from "./parts.js";
import { held } from "./tasks.js";

/** Scrolls a row of tokens to the one that looks. */
export function reveal(box) {
  const here = box.querySelector("[data-here]");
  if (here) box.scrollLeft = Math.max(0, Number(here.dataset.here) + 30 - box.clientWidth);
}

function figure(kind, name, made, note = "") {
  if (!made) return "";
  return `<section class="cx-figure cx-${kind}"><p class="cx-what">${name} <small>${escaped(note || made.label)}</small></p><div class="cx-scroll">${made.svg}</div></section>`;
}

function planeNote({ names, share, shaded }) {
  const percent = (100 * share).toFixed(share > 0.995 ? 1 : 0);
  return `the stream after the final norm, ${names}, among the directions that each answer\u2019s logit grows in; the plane
    holds ${percent}% of their variance; ${shaded ? "shaded: where the chosen digit wins; " : ""}small dots: where
    other steps end; path and directions have their own scales`;
}

/** The body of a model's panel. */
export function panel(frame, state, target) {
  if (target < 0) return "<p>This model writes no such token.</p>";
  look(frame, state, target);
  const made = plane(frame, state, target),
    adds = flow(frame, state, target);
  const how =
    frame.given?.kind === "direct"
      ? "an edge is what one part adds through the other, attention and norms as they are"
      : "a part\u2019s number is what the lead loses when it is removed here; norms follow the sums";
  const chart = figure("flow", "What adds to the answer", adds, adds && `${adds.what}; ${how}`),
    deep = frame.entry.cfg.n_layers > 1;
  return `${figure("arcs", "What looks where", arcs(frame, state, target))}${heads(frame, state, target)}${deep ? `<div class="cx-wide">${chart}</div>` : ""}
    <div>${deep ? "" : chart}${units(frame, state, target)}${logits(frame, state, target)}</div>
    <div>${figure(
      "plane",
      "The digits\u2019 plane",
      made,
      made && planeNote(made),
    )}${stream(frame, state, target)}</div>`;
}

export function skeleton(state) {
  const { examples, host } = state,
    option = (value, words, chosen) => `<option value="${value}" ${chosen ? "selected" : ""}>${words}</option>`;
  const carry = examples.map(([problem, shows]) =>
    option(escaped(problem), `${escaped(problem)}${shows ? `: ${escaped(shows)}` : ""}`),
  );
  const tables = state.models.filter(({ task }) => task.kind === "table" && !task.form && !host.encode);
  return `<form class="cx-controls"><label>Problem <input type="text" autocomplete="off" spellcheck="false" data-problem></label><button type="submit">Run</button>
      <select data-example aria-label="An example"><option value="">or an example \u2026</option>${carry.join("")}</select>
      <button type="button" data-reset>Put all back</button></form>
    ${tables.map(({ task }) => `<p class="cx-what"><small>${escaped(held(task))}</small></p>`).join("")}
    <p class="cx-alert" role="alert" hidden></p><div class="cx-verdicts" aria-live="polite"></div>
    <div class="cx-stepper"></div>
    <div class="cx-walk"><button type="button" data-walk="-1">\u2190 previous</button><button type="button" data-walk="1">next \u2192</button>
      <label>Read on with <select data-forced aria-label="The token that later steps read in place of this one"></select></label>
      <p class="cx-truth" aria-live="polite"></p></div>
    <details class="cx-options"><summary>Options: how to remove, patch, measure and share</summary><div class="cx-controls">
      <label>Removed means <select data-method>${option("zero", "zero")}${option("mean", "mean over problems")}</select></label>
      <label>Contributions against <select data-against>${option("runner-up", "the runner-up")}${option("mean", "the mean of all tokens")}</select></label>
      <label>Attention <select data-log>${option("", "linear")}${option("1", "log")}</select></label>
      <label>Second problem <input type="text" autocomplete="off" spellcheck="false" data-second></label>
      <label>A click <select data-click>${option("remove", "removes")}${option("patch", "patches, everywhere")}${option("here", "patches, at this digit")}</select></label>
      ${host.link ? '<button type="button" data-link>Copy link</button>' : ""}<button type="button" data-svg>SVG</button><button type="button" data-json>JSON</button></div></details>
    <div class="cx-panels"></div>
    <p class="cx-help">Keys: left and right step through the answer as it is written, a digit writes that digit here and Backspace takes it back, c switches what
    contributions are measured against, l the scale of attention, r puts all back, / goes to the problem; up and down on the arcs choose a token. Click a head or a neuron to take it out.
    Attention and probability: white 0, blue 1; signed numbers: blue above zero, vermilion below. The model runs in this page.</p>`;
}
