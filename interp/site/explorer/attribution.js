// What components write to the chosen token, what one adds through another, and the plane of the digits.

import { ACTIVATIONS, dot, finalNorm, rerunAt, times } from "./forward.js";

/** Against what the chosen token is measured: "mean", all tokens' mean, or "runner-up", the next best token. A weight
 * for each logit; the weights sum to zero. */
export function contrastOf(logits, token, against) {
  const c = new Float64Array(logits.length).fill(against === "mean" ? -1 / logits.length : 0);
  const others = [...logits.keys()].filter((other) => other !== token).sort((a, b) => logits[b] - logits[a]);
  c[token] += 1;
  if (against !== "mean") c[others[0]] -= 1;
  return { c, against: others[0], value: dot(c, logits) };
}

/** The components that write to the stream, in the order of depth: {name, kind, layer, column}. */
export function writers({ cfg }, mostUnits = 16) {
  const found = [{ name: "E", kind: "embedding", column: 0 }];
  if (["standard", "coupled"].includes(cfg.positional_embedding_type))
    found.push({ name: "P", kind: "embedding", column: 0 });
  for (let layer = 0; layer < cfg.n_layers; layer++) {
    for (let h = 0; h < cfg.n_heads; h++)
      found.push({ name: `L${layer}H${h}`, kind: "head", layer, index: h, column: 2 * layer + 1 });
    const column = 2 * layer + 2;
    if (cfg.d_mlp && cfg.d_mlp <= mostUnits) {
      for (let u = 0; u < cfg.d_mlp; u++) found.push({ name: `L${layer}N${u}`, kind: "unit", layer, index: u, column });
    } else if (cfg.d_mlp) found.push({ name: `L${layer}.mlp`, kind: "mlp", layer, column });
  }
  return found;
}

/** What a writer adds to the stream at a position of a run. */
function written(model, acts, writer, position) {
  const { cfg, weights: W } = model,
    block = `blocks.${writer.layer}`,
    { d_model: D, d_head: d, n_heads: H } = cfg;
  if (writer.name === "E") return acts.hook_embed[position];
  if (writer.name === "P") return acts.hook_pos_embed[position];
  if (writer.kind === "head") {
    const z = acts[`${block}.attn.hook_z`][position].subarray(writer.index * d, (writer.index + 1) * d);
    return times(z, W[`${block}.attn.W_O`], D, null, writer.index * d * D);
  }
  if (writer.kind === "unit")
    return times(
      [acts[`${block}.mlp.hook_post`][position][writer.index]],
      W[`${block}.mlp.W_out`],
      D,
      null,
      writer.index * D,
    );
  const bias = W[`${block}.mlp.b_out`];
  return acts[`${block}.hook_mlp_out`][position].map((x, i) => x - (bias ? bias[i] : 0));
}

/** A direction of a norm's output as one of its input, at the scale that it had. */
function throughNorm(model, acts, name, position, direction) {
  const w = model.weights[`${name}.w`];
  let out = direction.map((x, i) => x * w[i]);
  if (model.cfg.normalization_type === "LN") {
    const mean = out.reduce((a, b) => a + b, 0) / out.length;
    out = out.map((x) => x - mean);
  }
  return out.map((x) => x / acts[`${name}.hook_scale`][position][0]);
}

/** W y, where W is rows by columns from an offset. */
function ofRows(W, rows, y, offset = 0) {
  const out = new Float64Array(rows),
    n = y.length;
  for (let i = 0; i < rows; i++) for (let j = 0; j < n; j++) out[i] += W[offset + i * n + j] * y[j];
  return out;
}

/** The direction of the stream at a query that the contrast of its logits grows in. */
function towards(model, acts, position, c) {
  const u = ofRows(model.weights["unembed.W_U"], model.cfg.d_model, c);
  return model.cfg.has_final_norm ? throughNorm(model, acts, "ln_final", position, u) : u;
}

const slope = (f, x) => (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;

/**
 * {kind, parts: [{...writer, value}], biases, edges: [{from, to, value}]} at one target of a run.
 *
 * "direct": where streams are sums, a part's value is what it adds to the contrast directly, through the final norm at
 * the scale that it had; with the biases they sum to the contrast. An edge is what one part adds to the direct value of
 * a later one: through a head's values (attention as it is) or a unit's activation (at its slope), norms at their scales.
 *
 * "removal": after norms that follow the sums no such split exists. A value is then what the contrast loses when the
 * part is taken away at this position alone.
 */
export function contributions(model, run, target, c) {
  const { cfg, weights: W } = model,
    { acts } = run,
    position = run.layout.queries[target],
    parts = writers(model);
  if (!cfg.residual_stream_adds_up) {
    const whole = dot(c, run.logits[target]);
    const values = parts.map(
      (part) =>
        whole -
        dot(
          c,
          rerunAt(model, run, position, {
            ...run.options,
            edits: { ...run.options?.edits, [part.name]: { scale: 0 } },
          }),
        ),
    );
    return {
      kind: "removal",
      parts: parts.map((part, i) => ({ ...part, value: values[i] })),
      biases: 0,
      edges: parts.map((part, i) => ({ from: part.name, to: "logit", value: values[i] })),
    };
  }
  const u = towards(model, acts, position, c);
  const out = new Map(
    parts.map((part) => [
      part.name,
      [...Array(position + 1).keys()].map((at) =>
        at === position || part.column < 2 * cfg.n_layers - 1 ? written(model, acts, part, at) : null,
      ),
    ]),
  );
  const valued = parts.map((part) => ({ ...part, value: dot(out.get(part.name)[position], u) }));
  const edges = valued.map(({ name, value }) => ({ from: name, to: "logit", value }));
  for (const to of parts.filter(({ kind }) => kind !== "embedding")) {
    const block = `blocks.${to.layer}`,
      before = parts.filter((part) => part.column < to.column);
    let reads = []; // [position, direction of the stream there]
    if (to.kind === "head") {
      const { d_model: D, d_head: d } = cfg;
      const value = ofRows(W[`${block}.attn.W_O`], d, u, to.index * d * D);
      const read = ofRows(W[`${block}.attn.W_V`], D, value, to.index * D * d);
      const pattern = acts[`${block}.attn.hook_pattern`][position][to.index];
      reads = [...pattern.keys()]
        .filter((key) => pattern[key] > 0)
        .map((key) => [
          key,
          (cfg.has_pre_norm ? throughNorm(model, acts, `${block}.ln1`, key, read) : read).map((x) => x * pattern[key]),
        ]);
    } else {
      const units = to.kind === "unit" ? [to.index] : [...Array(cfg.d_mlp).keys()],
        M = cfg.d_mlp;
      const effect = new Float64Array(M),
        f = ACTIVATIONS[cfg.act_fn],
        pre = acts[`${block}.mlp.hook_pre`][position];
      const writes = ofRows(W[`${block}.mlp.W_out`], M, u);
      for (const unit of units) effect[unit] = writes[unit] * (pre[unit] === undefined ? 0 : slope(f, pre[unit]));
      let read;
      if (cfg.gated_mlp) {
        const linear = acts[`${block}.mlp.hook_pre_linear`][position];
        const open = Float64Array.from(pre, (x, unit) => (units.includes(unit) ? writes[unit] * f(x) : 0));
        read = ofRows(
          W[`${block}.mlp.W_gate`],
          cfg.d_model,
          effect.map((x, unit) => x * linear[unit]),
        );
        ofRows(W[`${block}.mlp.W_in`], cfg.d_model, open).forEach((x, i) => {
          read[i] += x;
        });
      } else read = ofRows(W[`${block}.mlp.W_in`], cfg.d_model, effect);
      reads = [[position, cfg.has_pre_norm ? throughNorm(model, acts, `${block}.ln2`, position, read) : read]];
    }
    for (const from of before) {
      const value = reads.reduce((sum, [at, direction]) => sum + dot(out.get(from.name)[at], direction), 0);
      edges.push({ from: from.name, to: to.name, value });
    }
  }
  const explained = valued.reduce((sum, { value }) => sum + value, 0);
  return { kind: "direct", parts: valued, biases: dot(c, run.logits[target]) - explained, edges };
}

/** Direct values of all units of all layers at a target; null after post-norms. */
export function unitWrites(model, run, target, c) {
  const { cfg, weights: W } = model,
    position = run.layout.queries[target];
  if (!cfg.residual_stream_adds_up || !cfg.d_mlp) return null;
  const u = towards(model, run.acts, position, c);
  return [...Array(cfg.n_layers).keys()].flatMap((layer) => {
    const reads = ofRows(W[`blocks.${layer}.mlp.W_out`], cfg.d_mlp, u);
    return [...run.acts[`blocks.${layer}.mlp.hook_post`][position].map((x, unit) => x * reads[unit])];
  });
}

// ---- the digits' plane

/** Eigenvalues and vectors of a small symmetric matrix, the largest first (Jacobi's rotations). */
export function eigen(matrix) {
  const n = matrix.length,
    A = matrix.map((row) => [...row]),
    V = A.map((_, i) => A.map((_, j) => Number(i === j)));
  for (let sweep = 0; sweep < 60; sweep++) {
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        if (Math.abs(A[p][q]) < 1e-300) continue;
        const theta = (A[q][q] - A[p][p]) / (2 * A[p][q]);
        const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1)),
          cos = 1 / Math.sqrt(t * t + 1),
          sin = t * cos;
        for (const M of [A, V])
          for (const row of M) [row[p], row[q]] = [cos * row[p] - sin * row[q], sin * row[p] + cos * row[q]];
        [A[p], A[q]] = [A[p].map((x, j) => cos * x - sin * A[q][j]), A[q].map((x, j) => sin * A[p][j] + cos * x)];
      }
    }
  }
  const order = [...Array(n).keys()].sort((a, b) => A[b][b] - A[a][a]);
  return order.map((k) => ({ value: A[k][k], vector: V.map((row) => row[k]) }));
}

/**
 * The plane of the first two principal axes of the digits' unembedding directions (the final norm's weights folded in,
 * their mean taken away): {digits: [[x, y]], share: of their variance in the plane, project(stream): [x, y]}. A stream
 * is projected after the final norm, before its weights; products of stream and digit in the plane are then those parts
 * of the logits that separate digits.
 */
export function planeOf(model, base) {
  const { cfg, weights: W } = model,
    D = cfg.d_model,
    V = cfg.n_logits,
    w = cfg.has_final_norm ? W["ln_final.w"] : null;
  const rows = [...Array(Math.min(base, V)).keys()].map((digit) =>
    Float64Array.from({ length: D }, (_, i) => W["unembed.W_U"][i * V + digit] * (w ? w[i] : 1)),
  );
  const mean = Float64Array.from({ length: D }, (_, i) => rows.reduce((sum, row) => sum + row[i], 0) / rows.length);
  const centred = rows.map((row) => row.map((x, i) => x - mean[i]));
  const found = eigen(centred.map((a) => centred.map((b) => dot(a, b)))),
    total = found.reduce((sum, { value }) => sum + Math.max(0, value), 0);
  const axes = found.slice(0, 2).map(({ value, vector }) => {
    const sign = vector[0] - vector[vector.length - 1] >= 0 ? -1 : 1; // the first digit left or below, whatever the solver
    return Float64Array.from({ length: D }, (_, i) =>
      value > 1e-12 * total
        ? (sign * centred.reduce((sum, row, digit) => sum + vector[digit] * row[i], 0)) / Math.sqrt(value)
        : 0,
    );
  });
  const project = (x) => axes.map((axis) => dot(x, axis));
  return {
    digits: centred.map(project),
    share: found.slice(0, 2).reduce((sum, { value }) => sum + value, 0) / total,
    project: (stream) => project(finalNorm(model, stream).normalized),
  };
}
