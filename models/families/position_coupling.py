"""The trained decoders of the Position Coupling paper (ICLR 2025), at the paper's sizes and at small ones.

One block is ``h = N(x + attn(N(x)))``, ``out = N(h + mlp(N(h)))``, RMSNorm before and after each sublayer with epsilon
outside the root, unscaled scores, a gated tanh-GELU MLP, no biases, and a final norm.

Every line of the paper's Tables 1 to 3 and every panel of its figures is a :class:`CouplingVariant`, registered under a
name such as ``position-coupling-6l8h-fire`` together with its recipe; ``-small`` is the same comparison at a size that
two CPU cores train in minutes. :data:`models.families.position_coupling_variants.FIGURES` says which figure shows
which.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from models.registry import ModelSpec, names, register
from models.tasks.named.position_coupling.multi_addition import AdditionFormat, MultiOperandAddition, padded_length
from models.tasks.named.position_coupling.multiplication import Multiplication
from models.tasks.named.position_coupling.parity import Parity
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.training.recipes import Recipe, add_recipe
from models.training.sequence_problems import AdditionSet, MultiplicationSet, ParitySet
from models.transformer.config import PositionKind, TransformerConfig
from models.weight_maps.tied_decoder import TiedDecoderWeights

#: Ids of a key minus the query's: the same digit of the same running sum or of the one before, or the digit after it.
TWO_BY_TWO = ((0, 0), (1, 0), (0, -1), (1, -1))
N_CTX = 4096  # beyond a product of two 30-digit numbers (2,853 tokens); nothing is allocated for it

KIND_NAMES: dict[PositionKind, str] = {"coupled": "", "none": "-nope", "fire": "-fire", "rotary": "-rope"}


@dataclass(frozen=True)
class DecoderSize:
    """Depth and widths; ``d_head`` defaults to d_model / n_heads."""

    n_layers: int = 6
    n_heads: int = 8
    d_model: int = 1024
    d_mlp: int = 2048
    d_head: int | None = None

    @property
    def head(self) -> int:
        return self.d_model // self.n_heads if self.d_head is None else self.d_head


def decoder_config(
    size: DecoderSize, task: SequenceTask, positions: PositionKind, position_limits: tuple[int, ...] = ()
) -> TransformerConfig:
    """The config of a decoder for a task. ``position_limits`` are the highest ids of each level, if coupled."""
    coupled = positions == "coupled"
    return TransformerConfig(
        n_layers=size.n_layers,
        d_model=size.d_model,
        n_heads=size.n_heads,
        d_head=size.head,
        d_mlp=size.d_mlp,
        d_vocab=task.d_vocab,
        n_ctx=N_CTX,
        act_fn="gelu_new",
        gated_mlp=True,
        normalization_type="RMS",
        norm_placement="both",
        norm_eps_outside=True,
        eps=1e-6,
        positional_embedding_type=positions,
        n_position_levels=len(position_limits) if coupled else 1,
        n_position_ids=max(position_limits) + 1 if coupled else None,
        attn_scale=1.0,
    )


@dataclass(frozen=True)
class CouplingVariant:
    """One trained model of the paper, or its small counterpart.

    ``longest`` and ``most`` bound the training problems: digits and operands of sums, digits of both factors, bits.
    ``limits`` are the highest position ids of each level (max_pos in Tables 1 to 3).
    """

    task: Literal["addition", "multiplication", "parity"] = "addition"
    size: DecoderSize = DecoderSize()
    positions: PositionKind = "coupled"
    scratchpad: bool = True
    format: AdditionFormat = field(default_factory=AdditionFormat)
    longest: int = 10
    most: int = 10
    limits: tuple[int, ...] = (40, 40)
    set_size: int = 500_000
    window: int | tuple[tuple[int, int], ...] | None = None  # not in the paper: the ids that heads see (attn_window)
    steps: int | None = None  # replaces the steps of the small recipe
    small: bool = False

    def replace(self, **changes: object) -> CouplingVariant:
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def base(self) -> CouplingVariant:
        """The baseline of this variant, whose settings its name leaves out."""
        return SMALL[self.task] if self.small else PAPER[self.task]

    @property
    def name(self) -> str:
        base, size = self.base, self.size
        name = "position-coupling" if self.task == "addition" else f"{self.task}-coupling"
        name += f"-{size.n_layers}l{size.n_heads}h"
        if size.d_model != base.size.d_model:
            name += f"-d{size.d_model}"
        if size.head != size.d_model // size.n_heads:
            name += f"-head{size.head}"
        name += KIND_NAMES[self.positions]
        name += "" if self.scratchpad else "-no-scratchpad"
        form = self.format
        name += "" if form.zero_padding else "-no-padding"
        name += "" if form.zero_start else "-no-zero-start"
        name += "-reversed-query" if form.reversed_query else "" if form.reversed_response else "-plain-response"
        if (self.longest, self.most) != (base.longest, base.most):
            name += f"-s{self.longest}x{self.most}"
        if self.set_size != base.set_size:
            name += f"-set{self.set_size}"
        if self.limits != base.limits:
            name += f"-ids{self.limits[0]}"
        name += "" if self.window is None else "-window-2x2" if self.window == TWO_BY_TWO else f"-window{self.window}"
        name += "" if self.steps is None else f"-steps{self.steps}"
        return name + ("-small" if self.small else "")

    def make_task(self) -> SequenceTask:
        """The task in the largest training shape."""
        if self.task == "addition":
            return MultiOperandAddition(self.most, self.longest, replace(self.format, scratchpad=self.scratchpad))
        if self.task == "multiplication":
            return Multiplication(self.longest, self.most, self.scratchpad)
        return Parity(self.longest, self.scratchpad)

    @property
    def position_limits(self) -> tuple[int, ...]:
        """Highest ids of the model's levels (one level without scratchpad); empty unless coupled."""
        if self.positions != "coupled":
            return ()
        if self.task == "multiplication" and not self.scratchpad:
            return (sum(self.limits[:2]),)  # one level counts the product's digits
        return self.limits[: self.make_task().n_position_levels]

    def weights(self) -> TiedDecoderWeights:
        limits = self.position_limits
        config = decoder_config(self.size, self.make_task(), self.positions, limits).replace(attn_window=self.window)
        return TiedDecoderWeights(config, limits)

    @property
    def training_set(self) -> AdditionSet | MultiplicationSet | ParitySet:
        common = {"size": self.set_size, "position_limits": self.position_limits}
        if self.task == "addition":
            return AdditionSet(**common, max_digits=self.longest, max_operands=self.most)
        if self.task == "multiplication":
            return MultiplicationSet(**common, max_first=self.longest, max_second=self.most)
        return ParitySet(**common, max_bits=self.longest)

    def recipe(self) -> Recipe:
        """Tables 1 to 3, or the small recipe; both without decay, Adam betas (0.9, 0.95), clip 1."""
        common = Recipe(
            weight_decay=0.0,
            betas=(0.9, 0.95),
            problems=self.training_set,
            validation_size=512,
            stop_after_perfect=None,
            autocast=True,
            snapshots=12,
        )
        if self.small:
            steps = self.steps or {"addition": 2_500, "multiplication": 2_500, "parity": 1_500}[self.task]
            rows = {"addition": 128, "multiplication": 64, "parity": 64}[self.task]
            return common.replace(steps=steps, warmup_steps=steps // 100, batch_size=rows, lr=1e-3, eval_every=100)
        lr = {"addition": 3e-5, "multiplication": 5e-5, "parity": 3e-5}[self.task]
        rows = {"addition": 400, "multiplication": 200, "parity": 20}[self.task]
        # Snapshots of 63 M parameters would fill a disk; the first and the last are enough.
        return common.replace(
            steps=50_000, warmup_steps=500, batch_size=rows, lr=lr, eval_every=1_000, validation_size=2_048, snapshots=0
        )

    @property
    def largest_shape(self) -> tuple[int, ...]:
        """The largest test problem that the position tables reach: (operands, digits), (digits, digits) or (bits,)."""
        if self.task == "addition":
            most = self.limits[1] - 1
            return most, max(n for n in range(1, self.limits[0]) if padded_length(n, most) + 1 <= self.limits[0])
        if self.task == "multiplication":
            factor = min(self.limits[0] - 2, (self.limits[2] - 1) // 2, self.limits[1])
            return factor, factor
        return (self.limits[0] - 1,)


#: Tables 1 to 3: the baselines of each task.
PAPER = {
    "addition": CouplingVariant(),
    # Table 1. The paper's text does not say how long its training queries are; 20 bits is this project's choice.
    "parity": CouplingVariant(
        "parity", DecoderSize(6, 8, 512, 2048), longest=20, most=1, limits=(101,), set_size=10_000
    ),
    "multiplication": CouplingVariant("multiplication", limits=(64, 32, 64)),
}

#: What two CPU cores can train and what still generalises to longer problems.
SMALL = {
    "addition": CouplingVariant(size=DecoderSize(1, 4, 128, 512), longest=4, most=4, limits=(12, 12), small=True),
    "parity": CouplingVariant(
        "parity", DecoderSize(1, 4, 128, 512), longest=20, most=1, limits=(101,), set_size=10_000, small=True
    ),
    "multiplication": CouplingVariant(
        "multiplication", DecoderSize(2, 4, 128, 512), longest=3, most=3, limits=(16, 8, 16), small=True
    ),
}


def register_variant(variant: CouplingVariant) -> str:
    """Register a variant as a model with a recipe; the same variant may come from several figures."""
    name = variant.name
    if name not in names(sweeps=True):
        register(
            ModelSpec(
                name=name,
                weight_map=variant.weights,
                task=variant.make_task,
                recipe=add_recipe(name, variant.recipe()),
                source="Position Coupling (ICLR 2025), appendix B" + (", scaled down" if variant.small else ""),
                sweep=True,
            )
        )
    return name
