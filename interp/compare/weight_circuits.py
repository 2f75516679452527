"""Circuits and responses as tables that do not depend on the basis of the residual stream, the heads or the units.

For every head there are these tables. x and y are the embeddings of tokens (of a vocabulary above
:data:`MOST_TOKENS`, of those that occur in the problems that are compared), or what positions add at the places of the
sequence; g1 are the gains of the norms before the head, g those after it:

    QK: x -> y      (x g1 W_Q + b) (y g1 W_K)^T / scale       rows x: tokens, query places or only the bias
    OV: x           x g1 W_V W_O g W_U                        rows x, columns output tokens
    OV written: x   inner products of the centred rows of x g1 W_V W_O, for heads that only the MLP reads

For the model there are tables by digit sum and carry in of the predicted column, on the problems of the comparison:

    attention, MLP  what the part adds to the logits of the answer digits, mean over problems
    logits          the logits

and the inner products of the centred embeddings of digits and of places. Rows have their mean (over the keys that a
query sees) subtracted, which no softmax or argmax over the row sees. Two tables are compared up to a positive factor
(:func:`interp.compare.matching.scaled_distance`).

Limits. Norms divide by the size of the stream, which depends on token and place; the tables leave that out, while
attention patterns and logits include it. Rows count by their size: MicroAdder's query for EOS is far from all columns,
and its row can outweigh all others together. For later layers, the tables contain only what is read directly from the
embedding. A norm with gains is not invariant to a rotation of its input; here its gains are part of the reading matrix.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from interp.compare.matching import centred_rows
from interp.compare.paired_readings import ReadingFrame, Readings, read_gain, weights_of, write_gain
from interp.core.task_checks import digit_ids
from models.transformer import in_block

#: Tables are as wide as the vocabulary up to so many tokens; beyond, tokens that no problem has are left out.
MOST_TOKENS = 2_048
_NOTHING = 1e-7  # size of a table, relative to the product of its factors' sizes, that rounding alone can leave

#: Table -> its name in figures.
NAMES = {
    "QK: token -> token": "QK: query token, key token",
    "QK: place -> place": "QK: query place, key place",
    "QK: token -> place": "QK: query token, key place",
    "QK: place -> token": "QK: query place, key token",
    "QK: bias -> token": "QK: bias, key token",
    "QK: bias -> place": "QK: bias, key place",
    "OV: token": "OV: token to logits",
    "OV: place": "OV: place to logits",
    "OV written: token": "OV: what tokens write, inner products",
    "OV written: place": "OV: what places write, inner products",
    "attention": "attention's logits by digit sum, carry",
    "MLP": "MLP's logits by digit sum, carry",
    "logits": "logits by digit sum, carry",
    "digits": "digits' embeddings, inner products",
    "places": "places' embeddings, inner products",
}


def head_tables(reading: Readings, at: ReadingFrame) -> dict[str, Float[np.ndarray, "head _ _"]]:
    """QK and OV tables of every head, with centred rows. QK is left out if scores are not dot products of fixed vectors
    (negative L1, max-plus, rotary positions)."""
    cfg, weights = reading.model.config, weights_of(reading.model)
    inputs = {"token": weights["embed.W_E"][tokens_of(at, cfg.d_vocab)]}
    if reading.places is not None:
        inputs["place"] = reading.places
    if cfg.normalization_type == "LN" and cfg.has_pre_norm:
        inputs = {name: x - x.mean(-1, keepdims=True) for name, x in inputs.items()}
    fixed = cfg.attn_scores == "dot" and cfg.positional_embedding_type != "rotary"
    queries = list(at.queries)
    unseen = np.arange(at.member.shape[-1]) > np.array(queries)[:, None]
    found: dict[str, list[np.ndarray]] = {}
    for layer in range(cfg.n_layers):
        block = in_block(layer) + "."
        gain = read_gain(weights, layer, "ln1")
        bias = weights.get(block + "ln1.b", np.zeros(cfg.d_model))
        out = np.reshape(write_gain(weights, layer, False, cfg.n_layers), (-1, 1)) * weights["unembed.W_U"]
        for head in range(cfg.n_heads):
            w_q, w_k, w_v, w_o = (weights[block + f"attn.W_{letter}"][head] for letter in "QKVO")
            if fixed:
                sources = {name: (x[queries] if name == "place" else x) * gain for name, x in inputs.items()}
                rows = {name: x @ w_q for name, x in sources.items()}
                rows["bias"] = (bias @ w_q + weights[block + "attn.b_Q"][head])[None]
                for to, x in inputs.items():
                    keys = (x * gain) @ w_k
                    for name, row in rows.items():
                        table = row @ keys.T / cfg.score_scale
                        sizes = _sizes(sources[name], w_q) if name in sources else _sizes(row)
                        limit = _NOTHING * sizes * _sizes(x * gain, w_k) / cfg.score_scale
                        if to == "place" and name == "place":
                            table = np.where(unseen, np.nan, table)
                        found.setdefault(f"QK: {name} -> {to}", []).append(_clean(table, limit))
            for name, x in inputs.items():
                written, limit = (x * gain) @ w_v @ w_o, _NOTHING * _sizes(x * gain, w_v, w_o)
                found.setdefault(f"OV: {name}", []).append(_clean(written @ out, limit * _sizes(out)))
                products = inner_products(written)
                small = np.linalg.norm(products) <= limit**2
                found.setdefault(f"OV written: {name}", []).append(np.zeros_like(products) if small else products)
    return {name: np.stack(tables) for name, tables in found.items()}


def tokens_of(at: ReadingFrame, d_vocab: int) -> Int[np.ndarray, " token"]:
    """The tokens of the tables: all, or of a vocabulary above :data:`MOST_TOKENS` those that the problems have."""
    return np.arange(d_vocab) if d_vocab <= MOST_TOKENS else at.tokens.unique().numpy()


def model_tables(reading: Readings, at: ReadingFrame) -> dict[str, Float[np.ndarray, "_ _"]]:
    """Responses by digit sum and carry in, with centred rows, and the embeddings' inner products."""
    found: dict[str, np.ndarray] = {name: centred_rows(table) for name, table in reading.responses.items()}
    weights = weights_of(reading.model)
    rows = np.asarray(digit_ids(reading.model.task))
    known = tokens_of(at, reading.model.config.d_vocab)
    found["digits"] = inner_products(weights["embed.W_E"][rows[np.isin(rows, known)]])
    if reading.places is not None:
        found["places"] = inner_products(reading.places)
    return found


def inner_products(points: Float[np.ndarray, "row d_model"]) -> Float[np.ndarray, "row row"]:
    """Inner products of the centred rows, which a rotation or a shift of all rows does not change. (Their scaled
    distance is one minus linear CKA, Kornblith et al. 2019.)"""
    centred = points - points.mean(0)
    return centred @ centred.T


def _sizes(*factors: np.ndarray) -> float:
    return float(np.prod([np.linalg.norm(factor) for factor in factors]))


def _clean(table: np.ndarray, limit: float) -> np.ndarray:
    """The table with centred rows; all zeros if nothing but rounding is left."""
    centred = centred_rows(table)
    return np.zeros_like(centred) if np.linalg.norm(centred) <= limit else centred
