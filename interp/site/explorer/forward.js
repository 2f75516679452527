// The one hooked forward pass (models/transformer/arithmetic_transformer.py) in JavaScript: every activation by hook name, greedy answers,
// and edits of any components on the way. Weights are the effective weights in TransformerLens' names; arithmetic is
// float64. Positions are computed one after another, each once, since attention looks back only.

// ---- weights

/** A model's weights from its pack {cfg, names, shapes, dtype, data: [base64 a snapshot]}. */
export function unpack(pack, snapshot = 0) {
  const text = atob(pack.data[snapshot]),
    bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const Kind = pack.dtype === "float64" ? Float64Array : Float32Array,
    all = new Kind(bytes.buffer);
  const weights = {};
  let at = 0;
  pack.names.forEach((name, i) => {
    const size = pack.shapes[i].reduce((a, b) => a * b, 1);
    weights[name] = all.subarray(at, (at += size));
  });
  return { cfg: pack.cfg, weights, shape: (name) => pack.shapes[pack.names.indexOf(name)] };
}

// ---- small algebra

/** x W + b, where W is rows by columns from an offset in its array. Four rows at a time: half the time of one by one. */
export function times(x, W, columns, b, offset = 0) {
  const out = new Float64Array(columns),
    n = x.length,
    whole = n - (n % 4);
  if (b) out.set(b);
  for (let i = 0; i < whole; i += 4) {
    const r = offset + i * columns,
      s = r + columns,
      t = s + columns,
      u = t + columns;
    const x0 = x[i],
      x1 = x[i + 1],
      x2 = x[i + 2],
      x3 = x[i + 3];
    for (let j = 0; j < columns; j++) out[j] += x0 * W[r + j] + x1 * W[s + j] + x2 * W[t + j] + x3 * W[u + j];
  }
  for (let i = whole; i < n; i++) {
    const row = offset + i * columns,
      xi = x[i];
    for (let j = 0; j < columns; j++) out[j] += xi * W[row + j];
  }
  return out;
}

export const plus = (x, y) => x.map((value, i) => value + y[i]);

export const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);

/** The first largest; -1 where one is not a number. */
export function mostLikely(logits) {
  let best = 0;
  for (let i = 0; i < logits.length; i++) {
    if (Number.isNaN(logits[i])) return -1;
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

/** erf to 1e-12: its series near zero, the continued fraction of erfc further out. */
function erf(x) {
  const a = Math.abs(x);
  if (a > 6) return Math.sign(x);
  if (a < 2.5) {
    let term = x,
      sum = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum) && n < 100; n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (a + fraction);
  return Math.sign(x) * (1 - Math.exp(-a * a) / Math.sqrt(Math.PI) / (a + fraction));
}

const TANH = Math.sqrt(2 / Math.PI);

export const ACTIVATIONS = {
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  gelu_new: (x) => 0.5 * x * (1 + Math.tanh(TANH * (x + 0.044715 * x ** 3))),
  relu: (x) => (x > 0 || Number.isNaN(x) ? x : 0),
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** What a norm reads is divided by its scale: {scale, normalized, out}. */
function norm(model, name, x) {
  const { cfg, weights } = model,
    n = x.length;
  if (cfg.normalization_type === "LN") {
    const mean = x.reduce((a, b) => a + b, 0) / n;
    x = x.map((value) => value - mean);
  }
  const square = dot(x, x) / n;
  const scale = cfg.norm_eps_outside ? Math.sqrt(square) + cfg.eps : Math.sqrt(square + cfg.eps);
  const w = weights[`${name}.w`],
    b = weights[`${name}.b`];
  const normalized = x.map((value) => value / scale);
  return { scale, normalized, out: normalized.map((value, i) => value * w[i] + (b ? b[i] : 0)) };
}

/** The final norm, or the stream itself in a model without. */
export const finalNorm = (model, x) =>
  model.cfg.has_final_norm ? norm(model, "ln_final", x) : { scale: 1, normalized: x, out: x };

export const unembed = (model, x) =>
  times(x, model.weights["unembed.W_U"], model.cfg.n_logits, model.weights["unembed.b_U"]);

/** Rotary embedding of one head's query or key. */
function rotate(x, position, { rotary_base: base, rotary_adjacent_pairs: adjacent }) {
  const out = new Float64Array(x.length),
    half = x.length / 2;
  for (let i = 0; i < half; i++) {
    const angle = position * base ** ((-2 * i) / x.length),
      [a, b] = adjacent ? [2 * i, 2 * i + 1] : [i, i + half];
    out[a] = x[a] * Math.cos(angle) - x[b] * Math.sin(angle);
    out[b] = x[b] * Math.cos(angle) + x[a] * Math.sin(angle);
  }
  return out;
}

/** FIRE's bias of one query on one key, a number per head. */
function fire({ cfg, weights }, query, key) {
  const limit = (cfg.fire_normaliser === "max" ? Math.max : Math.min)(cfg.fire_L0, query);
  const ratio = Math.log1p(cfg.fire_c * (query - key)) / Math.max(Math.log1p(cfg.fire_c * limit), 1e-6);
  const relu = (x) => x.map(ACTIVATIONS.relu);
  const hidden = relu(times([ratio], weights["fire.W_in"], 32, weights["fire.b_in"]));
  const middle = relu(times(hidden, weights["fire.W_mid"], 32, weights["fire.b_mid"]));
  return times(middle, weights["fire.W_out"], cfg.n_heads, weights["fire.b_out"]);
}

const SCORES = {
  dot,
  neg_l1: (q, k) => -q.reduce((sum, value, i) => sum + Math.abs(value - k[i]), 0),
  max_plus: (q, k) => q.reduce((most, value, i) => Math.max(most, value + k[i]), -Infinity),
};

/** Softmax over the best top_k of the scores, or all. */
export function softmax(scores, topK = null) {
  const threshold = topK === null ? -Infinity : [...scores].sort((a, b) => b - a)[Math.min(topK, scores.length) - 1];
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const shares = Float64Array.from(scores, (x) => (x >= threshold || Number.isNaN(x) ? Math.exp(x - most) : 0));
  const total = shares.reduce((a, b) => a + b, 0);
  return shares.map((x) => x / total);
}

// ---- components and what is done to them

/**
 * Where a component is: its hook and its part of what the hook sees. "L0H1" is a head (its z), "L0N3" a neuron of
 * the MLP, "L0.attn" and "L0.mlp" what attention and the MLP add to the stream, "E" and "P" the embeddings of token and position,
 * "L0 pre", "L0 mid" and "L0 post" the residual streams.
 */
export function component(cfg, name) {
  if (name === "E") return { hook: "hook_embed", from: 0, to: cfg.d_model };
  if (name === "P") return { hook: "hook_pos_embed", from: 0, to: cfg.d_model };
  const [, layer, kind, index] = /^L(\d+)([HN]|\.attn|\.mlp| pre| mid| post)(\d*)$/.exec(name),
    block = `blocks.${layer}`;
  if (kind === "H")
    return { hook: `${block}.attn.hook_z`, from: index * cfg.d_head, to: (Number(index) + 1) * cfg.d_head };
  if (kind === "N") return { hook: `${block}.mlp.hook_post`, from: Number(index), to: Number(index) + 1 };
  const hook = { ".attn": "hook_attn_out", ".mlp": "hook_mlp_out" }[kind] ?? `hook_resid_${kind.trim()}`;
  return { hook: `${block}.${hook}`, from: 0, to: cfg.d_model };
}

/**
 * Edits by hook, for the forward. ``edits``: {component: {scale, patch}}; a scale of 1 leaves a component whole and 0
 * takes it away, down to zero or to ``means`` (hook -> position -> values). ``patch`` replaces it by the run ``source``
 * before that, at all positions (true) or at a list of them.
 */
function compiled(cfg, { edits = {}, means = null, source = null }) {
  const byHook = {};
  for (const [name, { scale = 1, patch = false }] of Object.entries(edits)) {
    const part = component(cfg, name);
    (byHook[part.hook] ??= []).push({ ...part, scale, patch });
  }
  return (hook, position, x) => {
    if (!(hook in byHook)) return x;
    const out = Float64Array.from(x);
    for (const { from, to, scale, patch } of byHook[hook]) {
      const patched = source && (patch === true || (Array.isArray(patch) && patch.includes(position)));
      for (let i = from; i < to; i++) {
        const base = means?.[hook]?.[position]?.[i] ?? 0;
        const value = patched ? source.acts[hook][position][i] : out[i];
        out[i] = scale === 1 ? value : scale === 0 ? base : base + scale * (value - base);
      }
    }
    return out;
  };
}

// ---- the forward

/** Computes one position into ``acts`` (hook -> position -> numbers), given the keys and values before it: its logits. */
export function forwardAt(model, acts, position, token, ids, edit) {
  const { cfg, weights: W } = model,
    D = cfg.d_model,
    d = cfg.d_head,
    H = cfg.n_heads;
  const hook = (name, x) => ((acts[name] ??= [])[position] = edit(name, position, x));
  const row = (table, at) => Float64Array.from(table.subarray(at * D, (at + 1) * D));
  const normed = (name, x) => {
    const { scale, normalized, out } = norm(model, name, x);
    hook(`${name}.hook_scale`, [scale]);
    hook(`${name}.hook_normalized`, normalized);
    return out;
  };
  let x = hook("hook_embed", row(W["embed.W_E"], token));
  if (cfg.positional_embedding_type === "standard")
    x = plus(x, hook("hook_pos_embed", row(W["pos_embed.W_pos"], position)));
  if (cfg.positional_embedding_type === "coupled") {
    const rows = model.shape("pos_embed.W_pos")[1];
    const embedded = ids.map((id, level) => row(W["pos_embed.W_pos"], level * rows + id)).reduce(plus);
    x = plus(x, hook("hook_pos_embed", embedded));
  }
  for (let layer = 0; layer < cfg.n_layers; layer++) {
    const block = `blocks.${layer}`,
      attn = `${block}.attn`,
      mlp = `${block}.mlp`;
    x = hook(`${block}.hook_resid_pre`, x);
    const read = cfg.has_pre_norm ? normed(`${block}.ln1`, x) : x;
    const projected = (letter) => {
      const out = new Float64Array(H * d);
      for (let h = 0; h < H; h++) out.set(times(read, W[`${attn}.W_${letter}`], d, null, h * D * d), h * d);
      const bias = W[`${attn}.b_${letter}`];
      return bias ? plus(out, bias) : out;
    };
    let q = hook(`${attn}.hook_q`, projected("Q")),
      k = hook(`${attn}.hook_k`, projected("K")),
      keys = `${attn}.hook_k`;
    hook(`${attn}.hook_v`, projected("V"));
    if (cfg.positional_embedding_type === "rotary") {
      const turned = (x) =>
        Float64Array.from({ length: H }, (_, h) => h).reduce(
          (out, h) => (out.set(rotate(x.subarray(h * d, (h + 1) * d), position, cfg), h * d), out),
          new Float64Array(H * d),
        );
      q = hook(`${attn}.hook_rot_q`, turned(q));
      k = hook((keys = `${attn}.hook_rot_k`), turned(k));
    }
    const bias =
      cfg.positional_embedding_type === "fire"
        ? Array.from({ length: position + 1 }, (_, key) => fire(model, position, key))
        : null;
    const scores = [],
      z = new Float64Array(H * d);
    for (let h = 0; h < H; h++) {
      const query = q.subarray(h * d, (h + 1) * d);
      scores.push(
        Float64Array.from(
          { length: position + 1 },
          (_, key) =>
            SCORES[cfg.attn_scores](query, acts[keys][key].subarray(h * d, (h + 1) * d)) / cfg.score_scale +
            (bias ? bias[key][h] : 0),
        ),
      );
    }
    hook(`${attn}.hook_attn_scores`, scores);
    const pattern = hook(
      `${attn}.hook_pattern`,
      scores.map((each) => softmax(each, cfg.attn_top_k)),
    );
    for (let h = 0; h < H; h++) {
      for (let key = 0; key <= position; key++) {
        const share = pattern[h][key],
          v = acts[`${attn}.hook_v`][key];
        if (share !== 0) for (let e = h * d; e < (h + 1) * d; e++) z[e] += share * v[e];
      }
    }
    x = plus(
      x,
      hook(`${block}.hook_attn_out`, times(hook(`${attn}.hook_z`, z), W[`${attn}.W_O`], D, W[`${attn}.b_O`])),
    );
    if (cfg.has_post_norm) x = normed(`${block}.ln1_post`, x);
    if (cfg.d_mlp) {
      x = hook(`${block}.hook_resid_mid`, x);
      const input = cfg.has_pre_norm ? normed(`${block}.ln2`, x) : x,
        M = cfg.d_mlp,
        act = ACTIVATIONS[cfg.act_fn];
      let post;
      if (cfg.gated_mlp) {
        const gate = hook(`${mlp}.hook_pre`, times(input, W[`${mlp}.W_gate`], M)).map(act);
        const linear = hook(`${mlp}.hook_pre_linear`, times(input, W[`${mlp}.W_in`], M)),
          b = W[`${mlp}.b_in`];
        post = gate.map((value, i) => value * linear[i] + (b ? b[i] : 0));
      } else post = hook(`${mlp}.hook_pre`, times(input, W[`${mlp}.W_in`], M, W[`${mlp}.b_in`])).map(act);
      const out = times(hook(`${mlp}.hook_post`, post), W[`${mlp}.W_out`], D, W[`${mlp}.b_out`]);
      x = plus(x, hook(`${block}.hook_mlp_out`, out));
      if (cfg.has_post_norm) x = normed(`${block}.ln2_post`, x);
    }
    x = hook(`${block}.hook_resid_post`, x);
  }
  if (cfg.has_final_norm) x = normed("ln_final", x);
  return hook("unembed.hook_out", unembed(model, hook("unembed.hook_in", x)));
}

/**
 * The model's own answer: greedy, it reads the tokens that it wrote. ``layout`` is a problem of tasks.js. Options are
 * those of the edits, and ``forced``: {target: token} to write in place of its own, which later positions read.
 *
 * {tokens, answer: its choice at each target (-1 where it cannot go on), written, logits: [target][token], acts, layout,
 * options}
 */
export function run(model, layout, options = {}) {
  const acts = {},
    tokens = [...layout.prompt],
    answer = [],
    written = [],
    logits = [],
    edit = compiled(model.cfg, options);
  const limits = model.cfg.position_limits;
  let alive = true,
    ids = limits ? layout.ids(tokens) : null;
  for (let position = 0; position < layout.length; position++) {
    if (limits && position >= layout.prompt.length) ids = layout.ids(tokens);
    const here = ids?.[position];
    if (here?.some((id, level) => id > limits[level])) alive = false;
    const out = forwardAt(model, acts, position, tokens[position], alive ? here : here?.map(() => 0), edit);
    const target = layout.queries.indexOf(position);
    if (target >= 0) {
      answer[target] = alive ? mostLikely(out) : -1;
      written[target] = options.forced?.[target] ?? answer[target];
      logits[target] = out;
    }
    if (position + 1 >= tokens.length) tokens.push(Math.max(0, written[target] ?? 0));
  }
  tokens.length = layout.length;
  return { tokens, answer, written, logits, acts, layout, options };
}

/** The logits at one position of a run, computed again with edits at that position only. */
export function rerunAt(model, done, position, options) {
  const acts = {};
  for (const [hook, values] of Object.entries(done.acts))
    if (/hook_(v|k|rot_k)$/.test(hook)) acts[hook] = values.slice(0, position);
  const ids = model.cfg.position_limits ? done.layout.ids(done.tokens)[position] : null;
  return forwardAt(model, acts, position, done.tokens[position], ids, compiled(model.cfg, options));
}

/** Means by position of all components over the answers to problems of one shape: hook -> position -> values. */
export function meansOf(model, layouts) {
  const sums = {};
  for (const layout of layouts) {
    for (const [hook, positions] of Object.entries(run(model, layout).acts)) {
      if (!/hook_(z|post|attn_out|mlp_out|embed|pos_embed|resid_\w+)$/.test(hook)) continue;
      const total = (sums[hook] ??= positions.map((x) => new Float64Array(x.length)));
      positions.forEach((x, at) =>
        x.forEach((value, i) => {
          total[at][i] += value / layouts.length;
        }),
      );
    }
  }
  return sums;
}
