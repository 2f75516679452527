"""The models that the figures of the Position Coupling paper compare, at the paper's size and at small ones.

``python -m studies reproduce position-coupling:fig1 --size small`` trains, evaluates and draws a row of this table.
Every variant named here is registered when this module is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from models.families.position_coupling import PAPER, SMALL, TWO_BY_TWO, CouplingVariant, DecoderSize, register_variant
from models.tasks.named.position_coupling.multi_addition import AdditionFormat


@dataclass(frozen=True)
class PaperFigure:
    """The panels of a figure: a label and a model for each, in both sizes."""

    title: str
    task: str
    paper: Mapping[str, CouplingVariant]
    small: Mapping[str, CouplingVariant]


def _positions_and_scratchpads(base: CouplingVariant, kinds: dict[str, str]) -> dict[str, CouplingVariant]:
    return {
        f"{label}, {'scratchpad' if scratchpad else 'no scratchpad'}": base.replace(
            positions=kind, scratchpad=scratchpad
        )
        for scratchpad in (True, False)
        for label, kind in kinds.items()
    }


def _size(base: CouplingVariant, **changes: int | None) -> CouplingVariant:
    return base.replace(size=replace(base.size, **changes))


THREE = {"Position Coupling": "coupled", "NoPE": "none", "FIRE": "fire"}
FOUR = {"NoPE": "none", "RoPE": "rotary", "FIRE": "fire"}
_A, _a = PAPER["addition"], SMALL["addition"]


def _parity(base: CouplingVariant) -> dict[str, CouplingVariant]:
    return {"Position Coupling, scratchpad": base} | _positions_and_scratchpads(base, FOUR)


def _architectures(base: CouplingVariant) -> dict[str, CouplingVariant]:
    sizes = [(layers, heads) for layers in (1, 2, 4, 6) for heads in (2, 4, 8)]
    return {
        f"{layers} layer{'s' * (layers > 1)}, {heads} heads": _size(base, n_layers=layers, n_heads=heads)
        for layers, heads in sizes
    }


def _head_widths(base: CouplingVariant, widths: tuple[int, int]) -> dict[str, CouplingVariant]:
    d = base.size.d_model
    return {
        f"1 layer, {heads} heads of {width}": _size(
            base, n_layers=1, n_heads=heads, d_head=None if width == d // heads else width
        )
        for heads in (4, 8)
        for width in widths
    }


def _formats(base: CouplingVariant) -> dict[str, CouplingVariant]:
    directions = {
        "plain query, reversed response": (False, True),
        "reversed query, reversed response": (True, True),
        "plain query, plain response": (False, False),
    }
    return {
        f"{label}, {'zero padding' if padded else 'no padding'}": base.replace(
            format=AdditionFormat(True, padded, q, r)
        )
        for padded in (True, False)
        for label, (q, r) in directions.items()
    }


def _starts(base: CouplingVariant) -> dict[str, CouplingVariant]:
    first = base.replace(format=AdditionFormat(zero_start=False))
    return {"zeros": base, "the first operand": first}


def _lengths(base: CouplingVariant, bounds: tuple[int, ...]) -> dict[str, CouplingVariant]:
    return {f"S_A({bound}, {bound})": base.replace(longest=bound, most=bound) for bound in bounds}


def _windows(base: CouplingVariant) -> dict[str, CouplingVariant]:
    """The same training with heads that see all ids, near ids only, or just those that one step of a sum needs."""
    base = base.replace(limits=(40, 40))
    return {
        "all ids": base,
        "ids at most 1 away": base.replace(window=1),
        "two columns of two sums": base.replace(window=TWO_BY_TWO),
    }


def _set_sizes(base: CouplingVariant) -> dict[str, CouplingVariant]:
    return {f"{n:,} problems": base.replace(set_size=n) for n in (20_000, 100_000, 500_000, 2_000_000, 10_000_000)}


def _widths(base: CouplingVariant, widths: tuple[int, ...]) -> dict[str, CouplingVariant]:
    """One layer of four heads. The paper does not give the MLP's width here; the small models have 4 d."""
    return {
        f"d = {width}": base.replace(size=DecoderSize(1, 4, width, 4 * width if base.small else 2048))
        for width in widths
    }


def _figure(title: str, task: str, paper: dict[str, CouplingVariant], small: dict[str, CouplingVariant]) -> PaperFigure:
    for variant in (*paper.values(), *small.values()):
        register_variant(variant)
    return PaperFigure(title, task, MappingProxyType(paper), MappingProxyType(small))


FIGURES: Mapping[str, PaperFigure] = MappingProxyType(
    {
        "fig1": _figure(
            "Methods in multi-operand addition",
            "addition",
            _positions_and_scratchpads(_A, THREE),
            _positions_and_scratchpads(_a, THREE),
        ),
        # Not in the paper: the small size with tables that cover the whole 30 x 29 grid that its Figure 1 shows.
        "grid": _figure(
            "One layer on the whole grid",
            "addition",
            {"1 layer, 4 heads": _size(_A, n_layers=1, n_heads=4)},
            {"1 layer, 4 heads": _a.replace(longest=10, most=10, limits=(40, 40))},
        ),
        "grid-window": _figure(
            "One layer with a window of ids on the whole grid",
            "addition",
            {"ids at most 1 away": _size(_A, n_layers=1, n_heads=4).replace(window=1)},
            {"ids at most 1 away": _a.replace(longest=10, most=10, limits=(40, 40), window=1)},
        ),
        "grid-multiplication": _figure(
            "Two layers on products",
            "multiplication",
            {"2 layers, 4 heads": _size(PAPER["multiplication"], n_layers=2, n_heads=4)},
            {"2 layers, 4 heads": SMALL["multiplication"].replace(longest=5, most=5, limits=(24, 12, 24))},
        ),
        "fig3": _figure("Parity", "parity", _parity(PAPER["parity"]), _parity(SMALL["parity"])),
        "fig5": _figure("Training lengths", "addition", _lengths(_A, (7, 10, 13)), _lengths(_a, (3, 4, 5))),
        "fig6": _figure(
            "Training without zero padding",
            "addition",
            {"no padding": _A.replace(format=AdditionFormat(zero_padding=False))},
            {"no padding": _a.replace(format=AdditionFormat(zero_padding=False))},
        ),
        "fig9": _figure(
            "Methods in multiplication",
            "multiplication",
            _positions_and_scratchpads(PAPER["multiplication"], THREE),
            _positions_and_scratchpads(SMALL["multiplication"], THREE),
        ),
        "fig10": _figure("Architectures", "addition", _architectures(_A), _architectures(_a)),
        "fig11": _figure("Head dimensions", "addition", _head_widths(_A, (128, 256)), _head_widths(_a, (16, 32))),
        "fig12": _figure(
            "Embedding dimensions", "addition", _widths(_A, (64, 128, 256, 512)), _widths(_a, (32, 64, 128, 256))
        ),
        "fig13": _figure("Training set sizes", "addition", _set_sizes(_A), _set_sizes(_a)),
        # Not in the paper: heads that see no farther than its construction needs.
        "window": _figure(
            "Heads with a window of ids", "addition", _windows(_A.replace(longest=4, most=4)), _windows(_a)
        ),
        "footnote-3": _figure("What the scratchpad begins with", "addition", _starts(_A), _starts(_a)),
        "fig14": _figure("Input formats", "addition", _formats(_A), _formats(_a)),
    }
)

#: Trained four times as long as the figures' small models. interp certify goes through all that its queries can see.
register_variant(_a.replace(limits=(40, 40), window=TWO_BY_TWO, steps=10_000))
