"""The table that drives the conformance tests: one row a model.

Adding a model to the project means adding one row here; the contract, the comparison with a stock TransformerLens
model and the analysis tools then run on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import torch

import models
from models.families import addlm as addlm_models
from models.families.addlm_adder import ADDERS
from models.families.hand_built.adders import ADDERS as HAND_SET_ADDERS
from models.families.low_rank_adder import OPTIONS as LOW_RANK_ADDERS
from models.families.microadder_ladder import LADDER
from models.families.position_coupling import SMALL, DecoderSize
from models.families.toygpt import VARIANTS, ToyGPTVariant
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps import DenseWeights
from models.weight_maps.ternary import TernaryWeights
from tests.toy_task import ToyAddition

ADDLM_ADDERS = [f"addlm-adder-{what}" for what in ADDERS]
ANY_TWIN = ("HookedTransformer", "TransformerBridge")
#: The stock class of the installed version: HookedTransformer up to 3.9, the native bridge from 4.0 on.
STOCK_CLASS = ANY_TWIN[0] if find_spec("transformer_lens.HookedTransformer") else ANY_TWIN[1]


@dataclass(frozen=True)
class Row:
    """A model with random parameters, and what a stock TransformerLens model can hold of it.

    ``twins`` are the classes that compute the same activations from the same weights. ``refusal`` is the switch that
    stands in the way of both exports, ``bridge_refusal`` the weight that stands in the way of the bridge alone.
    ``problems`` are two problems of one shape, as a user would write them.
    """

    name: str
    build: Callable[[int], ArithmeticTransformer]  # from a seed
    twins: tuple[str, ...] = ANY_TWIN
    refusal: str | None = None
    bridge_refusal: str | None = None
    problems: list[tuple[int, ...] | str] = field(default_factory=lambda: [(57, 48), (9, 1)])
    covered: bool = False  # left to `make test-all` before others that have as little of their own

    @cached_property
    def _example(self) -> tuple[models.TransformerConfig, type]:
        model = self.build(0)
        return model.config, type(model.weight_map)

    @property
    def config(self) -> models.TransformerConfig:
        return self._example[0]

    @property
    def weights(self) -> type:
        """The class of its weight map."""
        return self._example[1]


def randomised(model: ArithmeticTransformer, seed: int, by: float = 0.4) -> ArithmeticTransformer:
    """All parameters moved off their initial values, so that nothing is zero or one by default."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += by * torch.randn(parameter.shape, generator=generator)
    return model


def registered(name: str, by: float = 0.4) -> Callable[[int], ArithmeticTransformer]:
    return lambda seed=0: randomised(models.build(name, seed=seed), seed + 1, by)


def hand_built(name: str, shrink: float = 1.0, **options: object) -> Callable[[int], ArithmeticTransformer]:
    """A registered model without parameters to train, its weights set free and moved off their values.

    At those values ReLUs sit on their kinks, all seeds agree and nothing can be trained, so that half of these tests
    would have nothing to say. That the exact weights do what they are for is tested with the model.
    """

    def build(seed: int = 0) -> ArithmeticTransformer:
        exact = models.build(name, **options)
        for parameter in exact.parameters():
            parameter.data *= shrink
        weight_map = DenseWeights(exact.config)
        weight_map.load_state_dict({key.replace(".", "/"): value for key, value in exact.all_weights().items()})
        return randomised(ArithmeticTransformer(weight_map, exact.task, name=name), seed + 1)

    return build


def dense(biases: bool = True, **switches: object) -> Callable[[int], ArithmeticTransformer]:
    """A model of free weights on the six-token task, with the given switches."""
    shape = {"n_layers": 2, "d_model": 12, "n_heads": 2, "d_head": 6, "d_mlp": 10, "d_vocab": 10, "n_ctx": 8}

    def build(seed: int = 0) -> ArithmeticTransformer:
        weight_map = DenseWeights(models.TransformerConfig(**(shape | switches)), biases=biases)
        weight_map.initialise(torch.Generator().manual_seed(seed))
        return randomised(ArithmeticTransformer(weight_map, ToyAddition()), seed + 1)

    return build


def decoder(positions: str) -> Callable[[int], ArithmeticTransformer]:
    """The Position Coupling paper's decoder, small: tied head, a table a level, norms before and after."""
    variant = SMALL["addition"].replace(
        size=DecoderSize(2, 2, 12, 10), longest=2, most=2, limits=(7, 5), positions=positions
    )

    def build(seed: int = 0) -> ArithmeticTransformer:
        weight_map = variant.weights()
        weight_map.initialise(torch.Generator().manual_seed(seed))
        return randomised(ArithmeticTransformer(weight_map, variant.make_task()), seed + 1)

    return build


def addlm(suffix: str) -> Callable[[int], ArithmeticTransformer]:
    """A variant of AddLM, small and on the six-token task."""

    def build(seed: int = 0) -> ArithmeticTransformer:
        variant = addlm_models.VARIANTS["0.8m"][suffix]
        size = variant.config(addlm_models.SIZES["0.8m"])
        cfg = size.replace(n_layers=2, d_model=12, n_heads=2, d_head=6, d_mlp=10, d_vocab=10, n_ctx=8)
        cfg = cfg if cfg.attn_top_k is None else cfg.replace(attn_top_k=3)
        weight_map = TernaryWeights(cfg, variant.ternary)
        weight_map.initialise(torch.Generator().manual_seed(seed))
        return randomised(ArithmeticTransformer(weight_map, ToyAddition()), seed + 1)

    return build


def without_twin(name: str, refusal: str, **switches: object) -> Row:
    return Row(name, dense(**switches), twins=(), refusal=refusal)


def toygpt(variant: ToyGPTVariant) -> Row:
    """One of ToyGPT's nine models; a stock model has LayerNorm before the sublayers or nowhere."""
    build = registered(variant.name, by=0.1)  # at width 128 more would make scores of hundreds, which float32 blurs
    covered = variant.name not in ("toygpt-learned-pre", "toygpt-rotary-post", "toygpt-none-none")
    if variant.layer_norm == "pre":
        return Row(variant.name, build, covered=covered)
    return Row(variant.name, build, twins=(), refusal="norm_placement", covered=covered)


ROWS = [
    *(Row(rung.name, registered(rung.name)) for rung in LADDER),  # microadder-242 to microadder-57
    Row("microadder-11", registered("microadder-11")),
    *(Row(name, hand_built(name, shrink=0.2)) for name in ("microadder-57-by-hand", "microadder-67-by-hand")),
    *(Row(adder.name, hand_built(adder.name, shrink=0.2)) for adder in HAND_SET_ADDERS),
    *(Row(name, registered(name)) for name in LOW_RANK_ADDERS),
    Row("subtractor-47", registered("subtractor-47")),
    Row("Position Coupling's decoder", decoder("coupled"), twins=(), refusal="positional_embedding_type"),
    Row("Position Coupling's decoder, FIRE", decoder("fire"), twins=(), refusal="positional_embedding_type"),
    Row("LN, 1 layer", dense(n_layers=1, normalization_type="LN", act_fn="gelu_new")),
    Row("RMS, unscaled scores", dense(normalization_type="RMS", attn_scale=1.0, act_fn="relu")),
    Row("no norms, no positions", dense(normalization_type=None, positional_embedding_type="none", act_fn="silu")),
    Row("gated, no biases", dense(biases=False, n_layers=3, gated_mlp=True, act_fn="gelu_new")),
    Row(
        "gated with biases",
        dense(gated_mlp=True, act_fn="silu"),
        twins=("HookedTransformer",),
        bridge_refusal="blocks.0.mlp.b_in",
    ),
    Row("rotary, neighbours", dense(positional_embedding_type="rotary")),
    Row(
        "rotary, halves, 4 layers",
        dense(n_layers=4, positional_embedding_type="rotary", rotary_adjacent_pairs=False, normalization_type="LN"),
        twins=("HookedTransformer",),  # the bridge's queries and keys are in another order
    ),
    Row("attention only", dense(d_mlp=0)),
    Row(
        "position-coupling-hand-built",
        hand_built("position-coupling-hand-built", max_operands=2, max_digits=2),
        twins=(),
        refusal="positional_embedding_type",
    ),
    Row(
        "parity-hand-built",
        hand_built("parity-hand-built", max_bits=6),
        twins=(),
        refusal="positional_embedding_type",
        problems=["0101", "0110"],
    ),
    Row(
        "multiplication-hand-built",
        hand_built("multiplication-hand-built", max_digits=3, eta=1.0),  # gentle enough for finite differences
        twins=(),
        refusal="positional_embedding_type",
    ),
    Row("AddLM's float baseline", addlm("-float")),
    Row("AddLM, ternary only", addlm("-ternary")),
    Row("AddLM, L1 only", addlm("-l1"), twins=(), refusal="attn_scores"),
    Row("AddLM", addlm(""), twins=(), refusal="attn_scores"),
    Row("AddLM, all keys", addlm("-top-all"), twins=(), refusal="attn_scores"),
    Row("AddLM, max-plus", addlm("-max-plus"), twins=(), refusal="attn_scores"),
    without_twin("max-plus", "attn_scores", attn_scores="max_plus"),
    without_twin(
        "coupled positions", "positional_embedding_type", positional_embedding_type="coupled", n_position_levels=2
    ),
    without_twin("FIRE", "positional_embedding_type", positional_embedding_type="fire"),
    without_twin(
        "parallel, part rotary", "rotary_dim", parallel_attn_mlp=True, positional_embedding_type="rotary", rotary_dim=2
    ),
    without_twin("negative L1, top 3", "attn_scores", attn_scores="neg_l1", attn_top_k=3),
    without_twin("top 3", "attn_top_k", attn_top_k=3),
    *(Row(name, registered(name), twins=(), refusal="attn_scores") for name in ADDLM_ADDERS),
    without_twin("post-norm", "norm_placement", norm_placement="post", normalization_type="LN"),
    without_twin(
        "norm before and after",
        "norm_placement",
        norm_placement="both",
        gated_mlp=True,
        act_fn="gelu_new",
        attn_scale=1.0,
    ),
    without_twin("final norm only", "norm_placement", norm_placement="none", normalization_type="LN"),
    *(toygpt(variant) for variant in VARIANTS),
    without_twin("eps outside", "norm_eps_outside", norm_eps_outside=True, eps=1e-2),
]

#: Sizes, which the contract does not depend on beyond one layer or more, and an MLP or none.
SIZES = (
    "n_layers", "d_model", "n_heads", "d_head", "d_mlp", "d_vocab", "n_ctx", "init_range", "eps", "attn_scale",
    "n_position_ids",
)  # fmt: skip


#: One model of each way to hold weights and to normalise: every test runs on them in `make test`.
KEPT = ("microadder-57", "AddLM", "gated, no biases", "rotary, neighbours", "attention only", "post-norm")


def _traits(row: Row) -> set[tuple[str, Any]]:
    """What of a row decides how it meets the contract: each switch, how weights are made, which twins there are."""
    config = row.config
    traits = {(key, str(value)) for key, value in vars(config).items() if key not in SIZES}
    few = {"layers": min(config.n_layers, 2), "mlp": config.d_mlp > 0, "unscaled": config.attn_scale == 1.0}
    of_row = {"weights": row.weights, "twins": row.twins, "refusal": row.refusal, "bridge": row.bridge_refusal}
    return traits | set((few | of_row).items())


@cache
def covered() -> set[str]:
    """Rows that have nothing that no other row has: only `make test-all` runs them."""
    left, found = {row.name: _traits(row) for row in ROWS}, set()
    for row in sorted(ROWS, key=lambda row: not row.covered):
        others = set().union(*(traits for name, traits in left.items() if name != row.name))
        if row.name not in KEPT and left[row.name] <= others:
            found.add(row.name)
            del left[row.name]
    return found
