"""How many multiplications a forward pass needs, part by part: what AddLM's algebra removes and what it leaves.

What counts is a product of two numbers that the input or training decides, for one sequence of ``n_pos`` tokens with
all logits computed, as a machine with signed adders would do it:

* a matrix product of [n, a] by [a, b] takes ``n a b``; with ternary weights only ``n b`` for the matrix's scale;
* dot-product scores take d_head per visible pair and head, L1 distances and max-plus scores none; a scale that is not 1
  takes one per pair;
* softmax takes one per kept pair (by the inverse of the sum); its exponentials are counted separately; mixing values
  takes d_head per kept pair;
* a norm takes 3 per coordinate: the square, the inverse deviation, the gain (2 without gains, as folded);
* GELU takes its function evaluations (counted separately) and one product, ReLU none; a gated MLP one more per unit.

Additions, comparisons and memory traffic are not counted: on processors with multiply-add units, removing
multiplications saves nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from models.errors import UserError
from models.registry import build
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.ternary import TernaryWeights


@dataclass(frozen=True)
class MultiplicationCount:
    """How many products and transcendental functions one forward pass takes, by part of the model."""

    model: str
    n_pos: int
    products: dict[str, int]
    functions: dict[str, int]  # exponentials, inverse square roots, GELUs

    @property
    def total(self) -> int:
        return sum(self.products.values())

    def to_dataframe(self) -> pd.DataFrame:
        """One row per part: products, their share of the total, function evaluations."""
        rows = [(part, n, n / self.total, self.functions.get(part, 0)) for part, n in self.products.items()]
        return pd.DataFrame(rows, columns=["part", "multiplications", "share", "function evaluations"])

    def share_removed(self, float_twin: MultiplicationCount) -> float:
        """The share of the other model's multiplications that this one does not need."""
        return 1 - self.total / float_twin.total


def count_multiplications(model: ArithmeticTransformer, n_pos: int | None = None) -> MultiplicationCount:
    """Count for one sequence of ``n_pos`` tokens (the task's input by default).

    Raises:
        UserError: more positions than the model has.
    """
    cfg = model.config
    n_pos = min(model.task.input_length, cfg.n_ctx) if n_pos is None else n_pos
    if not 1 <= n_pos <= cfg.n_ctx:
        raise UserError(f"n_pos must be in 1..{cfg.n_ctx}, not {n_pos}.")
    ternary = isinstance(model.weight_map, TernaryWeights) and model.weight_map.is_ternary
    return compute_multiplications(cfg, ternary, n_pos, model.name_or_path or "model")


def compute_multiplications(cfg: TransformerConfig, ternary: bool, n_pos: int, name: str) -> MultiplicationCount:
    """The count, from the config alone."""
    layers, heads, d = cfg.n_layers, cfg.n_heads, cfg.d_head
    visible = [i + 1 for i in range(n_pos)]
    pairs = sum(visible)
    kept = sum(min(n, cfg.attn_top_k or n) for n in visible)  # ties may keep more

    def matrix(a: int, b: int) -> int:
        return layers * n_pos * (b if ternary else a * b)

    scores = pairs * heads * (d if cfg.attn_scores == "dot" else 0)
    scores += pairs * heads * (cfg.score_scale != 1.0)
    gates = 1 + cfg.gated_mlp
    norms_a_layer = (cfg.has_pre_norm + cfg.has_post_norm) * (2 if cfg.d_mlp else 1)
    norms = layers * norms_a_layer + cfg.has_final_norm
    smooth = cfg.act_fn != "relu"
    products = {
        "projections (Q, K, V, O)": 3 * matrix(cfg.d_model, heads * d) + matrix(heads * d, cfg.d_model),
        "scores": layers * scores,
        "softmax": layers * kept * heads,
        "mixing values": layers * kept * heads * d,
        "MLP": gates * matrix(cfg.d_model, cfg.d_mlp)
        + matrix(cfg.d_mlp, cfg.d_model)
        + layers * n_pos * cfg.d_mlp * (smooth + cfg.gated_mlp),
        "norms": 3 * norms * n_pos * cfg.d_model,
        "head": n_pos * cfg.d_model * cfg.d_vocab,
    }
    functions = {
        "softmax": layers * kept * heads,
        "MLP": layers * n_pos * cfg.d_mlp * smooth,
        "norms": norms * n_pos,
    }
    return MultiplicationCount(name, n_pos, products, functions)


def beside_twin(name: str) -> pd.DataFrame:
    """Multiplications of a model in AddLM's algebra and of its float twin ("NAME-float"), by part and in total."""
    ours, twin = (count_multiplications(build(f"{name}{kind}")) for kind in ("", "-float"))
    table = pd.DataFrame({"float": twin.products, "AddLM": ours.products})
    table.loc["all"] = table.sum()
    return table.rename_axis("part").reset_index()
