// What the view computes: a model's run of a problem as the state says, the steps that two models share, and what is
// shown at one of them.

import { contrastOf, contributions, unitWrites } from "./attribution.js";
import { meansOf, run, unpack } from "./forward.js";
import { targetText, tokenText } from "./parts.js";
import { drawn, layoutOf, numberOf } from "./tasks.js";

/** Steps of all models in one order: those of the longer answer, the others where they stand in the shorter. */
export function mergedSteps(frames) {
  const order = frames.map((_, i) => i).sort((i, j) => frames[j].layout.keys.length - frames[i].layout.keys.length);
  const keys = [...frames[order[0]].layout.keys];
  for (const i of order.slice(1)) {
    frames[i].layout.keys.forEach((key, at, all) => {
      if (!keys.includes(key)) keys.splice(at ? keys.indexOf(all[at - 1]) + 1 : 0, 0, key);
    });
  }
  return keys.map((key) => {
    const at = frames.map(({ layout }) => layout.keys.indexOf(key)),
      i = at.findIndex((target) => target >= 0),
      { layout } = frames[i];
    return {
      key,
      at,
      label: layout.labels[at[i]],
      ...layout.truths[at[i]],
      right: targetText(frames[i], at[i], layout.right[at[i]]),
    };
  });
}

/** Everything about one model's run of the problem, edited as the state says. Throws one sentence for what cannot be. */
export function frameOf(state, i) {
  const entry = state.models[i],
    snapshot = state.snapshot[i],
    model = (state.loaded[i][snapshot] ??= unpack(entry, snapshot));
  const layout = layoutOf(state.problem, entry.task, entry.cfg),
    edits = state.edits[i],
    wholeRun = run(model, layout);
  let source = null,
    means = null;
  if (state.second) {
    const other = layoutOf(state.second, entry.task, entry.cfg);
    if (other.length !== layout.length)
      throw new Error(
        `${state.second} is written in ${other.length} tokens and ${layout.problem} in ${layout.length}: a patch needs as many.`,
      );
    source = run(model, other);
  }
  if (state.method === "mean" && Object.values(edits).some(({ scale }) => scale !== 1)) {
    const shape = `${i} ${snapshot} ${layout.roles.map(({ label }) => label).join(" ")}`,
      n = model.weights["embed.W_E"].length * entry.cfg.n_layers > 1000 ? 64 : 256;
    means = state.means[shape] ??= meansOf(
      model,
      drawn(layout.problem, entry.task, n).map((text) => layoutOf(text, entry.task, entry.cfg)),
    );
  }
  const forced = Object.fromEntries(
    Object.entries(state.forced)
      .map(([key, token]) => [layout.keys.indexOf(key), token])
      .filter(([target]) => target >= 0),
  );
  const changed = Object.keys(edits).length || Object.keys(forced).length;
  const done = changed ? run(model, layout, { edits, means, source, forced }) : wholeRun;
  const spelt = (tokens) => numberOf(layout, entry.task, tokens);
  return {
    i,
    entry,
    model,
    snapshot,
    layout,
    run: done,
    wholeRun,
    edits,
    answer: spelt(done.answer),
    good: done.answer.every((token, target) => token === layout.right[target]), // what the task compares
    right: spelt(layout.right),
    whole: spelt(wholeRun.answer),
    forced: Object.entries(forced).map(([target, token]) => [layout.labels[target], tokenText(entry, token)]),
  };
}

/** What is shown of a frame at one target, next to its run. */
export function look(frame, state, target) {
  const token = frame.run.answer[target];
  frame.contrast = token < 0 ? null : contrastOf(frame.run.logits[target], token, state.against);
  frame.given = frame.contrast && contributions(frame.model, frame.run, target, frame.contrast.c);
  frame.unitWrites = frame.contrast && unitWrites(frame.model, frame.run, target, frame.contrast.c);
}
