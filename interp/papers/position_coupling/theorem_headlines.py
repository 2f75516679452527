"""Position Coupling's Theorem 4.1: the hand-built transformer, its size, its limits, and its proofs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import models
from interp.core.numerals import shown
from interp.core.results import Provenance
from interp.papers.headlines.counts import Finder
from interp.papers.headlines.headline import Headline
from interp.papers.headlines.rules import AtLeast, AtMost, Digits, Ours, counted, several, share
from interp.papers.headlines.store import NotStored, Store
from models.hand_built.coupled_addition import NAME, HandBuiltOptions

SHOWN = "interp headlines --paper position-coupling"
GRID, CERTIFIED, LARGE = (
    f"python -m interp.{module}"
    for module in ("coupled.hand_built_grid", "certificates.coupled_grid", "coupled.hand_built_large")
)
_line = partial(Headline, "position-coupling")
_count = partial(Headline, "position-coupling", kind="count")


def stated_width(operands: int, digits: int) -> int:
    """The paper's sufficient embedding dimension, 2 ceil log2(n + 1 + floor log10 m) + 2 ceil log2(m + 1) + 19."""
    length = digits + 1 + math.floor(math.log10(operands))
    return 2 * math.ceil(math.log2(length)) + 2 * math.ceil(math.log2(operands + 1)) + 19


def built(**options: Any) -> Any:
    return models.build(NAME, **options)


def wider(operands: int, digits: int) -> Finder:
    """Dimensions that the construction needs beyond the stated ones."""

    def found(store: Store) -> Ours:
        width, stated = built(max_operands=operands, max_digits=digits).config.d_model, stated_width(operands, digits)
        remark = f"{width} dimensions, by the formula {stated}"
        source = f"the construction for {operands} operands of {digits} digits"
        return counted(1, source).with_value(width - stated, remark)

    return found


def token_dims(store: Store) -> Ours:
    """Dimensions that are not positions."""
    bits = sum(HandBuiltOptions().position_bits)
    return counted(built().config.d_model - 2 * bits, "dimensions of the residual stream without positions")


def layers_and_heads(store: Store) -> Ours:
    config = built().config
    return several((float(config.n_layers), float(config.n_heads)), "layers and heads of the construction")


def right_on_grid(store: Store) -> Ours:
    """Problems of the whole grid that it answers, teacher-forced."""
    value = store.read("hand_built_grid")
    cells = [dict(zip(value["cell"], cell, strict=True)) for cell in value["cells"]]
    right, n = (sum(cell[key] for cell in cells) for key in ("correct", "problems"))
    seed = value["settings"]["seed"]
    return share(right, n, f"problems of {len(cells)} sizes", value["rung"], seed, NAME)


def certified_sizes(store: Store) -> Ours:
    """Sizes on all of whose problems it is proved right, float32 rounding included."""
    rows = store.read("hand_built_certificates")["margins"]["rounded"]
    margins = [margin for row in rows for margin in row]
    proved = sum(margin > 0 for margin in margins)
    source = Provenance(len(margins), None, "sizes, all problems of each", "certified with rounding")
    remark = f"the right token leads by at least {shown(min(margins), 3)}"
    return Ours(proved / len(margins), source, counts=(proved, len(margins)), model=NAME, remark=remark)


def right_on_large(store: Store) -> Ours:
    """Large problems that it answers (of the largest sizes, a sample of positions)."""
    sizes = store.read("hand_built_large")["sizes"]
    if not sizes:
        raise NotStored("No large size is stored.")
    # The same problems in two dtypes are one check: it counts as right if both are.
    distinct: dict[tuple[int, int], list[int]] = {}
    for size in sizes:
        correct, n_of_size = distinct.setdefault((size["operands"], size["digits"]), [size["problems"], 0])
        distinct[size["operands"], size["digits"]] = [min(correct, size["correct"]), max(n_of_size, size["problems"])]
    right, n = (sum(column) for column in zip(*distinct.values(), strict=True))
    longest, most = (max(size[key] for size in sizes) for key in ("digits", "operands"))
    what = f"problems of {len(distinct)} sizes, up to {longest:,} digits and {most:,} operands"
    return share(right, n, what, "sampled", 0, NAME)


def right_when(**options: Any) -> Finder:
    """Problems that a variant of the construction answers: 100 of its largest size."""

    def found(store: Store) -> Ours:
        from interp.core.operand_problems import grid_problems
        from interp.papers.position_coupling.hand_built_grid import run_cell

        operands, digits = options["max_operands"], options["max_digits"]
        cell = run_cell(built(**options), grid_problems(operands, digits, 100, 0))
        return share(cell.correct, cell.problems, f"problems of {operands} operands of {digits} digits", "sampled", 0)

    return found


HEADLINES: tuple[Headline, ...] = (
    _count("Theorem 4.1", "Layers and heads that are enough for sums.", "1-layer 4-head", Digits(), SHOWN,
          layers_and_heads, quote="there exists a 1-layer 4-head decoder-only Transformer"),
    _line("Theorem 4.1", "The construction adds up to 30 operands of 30 digits: sampled problems.",
          "solves the multi-operand", AtLeast(0.999), GRID, right_on_grid, "%"),
    _line("Theorem 4.1", "The construction adds up to 30 operands of 30 digits: all problems.",
          "solves the multi-operand", AtLeast(1.0), CERTIFIED, certified_sizes, "%"),
    _line("Theorem 4.1", "The construction adds exponentially many and long operands: large problems.",
          "exponentially long operands", AtLeast(0.9), LARGE, right_on_large, "%"),
    _count("Appendix D.4.1", "Dimensions of the token embedding.", "19", Digits(), SHOWN, token_dims, "dimensions",
          "The token embedding consists of 19 dimensions"),
    _count("Appendix D.4.2", "The stated width is enough for 30 operands of 30 digits.",
          "choice of embedding dimension is", AtMost(0, "the dimensions needed beyond the stated ones"), SHOWN,
          wider(30, 30), "dimensions"),
    _count("Appendix D.4.2", "The stated width is enough for 3 operands of 2 digits.",
          "choice of embedding dimension is", AtMost(0, "the dimensions needed beyond the stated ones"), SHOWN,
          wider(3, 2), "dimensions"),
    _line("Appendix D.4.2", "The NEXT code of the last id may be the first id's.", "instead of",
          AtLeast(0.9, "the share right where the ids fill their codes"), SHOWN,
          right_when(max_operands=3, max_digits=2, last_next="paper", P1=2), "%"),
    _line("Appendix D.5.1", "The scale of scores may be arbitrarily large: 100,000, in float32.", "arbitrarily large",
          AtLeast(0.9), SHOWN, right_when(max_operands=3, max_digits=2, eta=1e5), "%"),
    _line("Appendix D.5.1", "The scale of scores may be 16.", "arbitrarily large", AtLeast(0.9), SHOWN,
          right_when(max_operands=3, max_digits=2, eta=16.0), "%"),
)  # fmt: skip
