"""The result of :func:`interp.swap_components`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from interp.compare.swapped_parts import EVERYTHING
from interp.core.batches import right_tokens
from interp.core.controls import NO_CONTROL
from interp.core.drawings import drawing
from interp.core.recovered_share import recovered_share
from interp.core.results import Provenance
from interp.core.significance import permutation_p
from interp.core.stats import proportion
from interp.core.table_result import ENDS, Measure, TableResult
from interp.core.thresholds import ABLE, KEPT
from interp.core.views import Grid, Line, Picture, Points, Series
from models.errors import UserError, known_name
from models.evaluation import margins
from models.number_format import counted, in_percent

CLEAN = "whole model"
SOURCES = ("swapped", "itself", "ablated", "shuffled", "untrained")
_NO_HARM = 1e-3  # nats; if ablation loses less than this, there is nothing to recover

KEYS = ("component", "source", "copy")
EXACT = Measure("exact", "share", title="problems with every answer token right")
RECOVERED = Measure("recovered", "share", title="loss recovered: 0 as ablated, 1 as the whole model")
_COLUMNS = ("partner", "n", "right", "exact", "exact_low", "exact_high", "tokens", "loss", "margin")
_MORE = ("recovered", "recovered_low", "recovered_high", "r2", "overlap", "fitted", "p_untrained")


@dataclass
class SwapOutcome:
    """The answers of one run, collected batch by batch."""

    right: list[np.ndarray] = field(default_factory=list)  # [n, target]
    loss: list[np.ndarray] = field(default_factory=list)  # [n]
    margin: list[np.ndarray] = field(default_factory=list)  # [n]
    sums: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, logits: Float[Tensor, "n target d_vocab"], right: Int[Tensor, "n target"]) -> None:
        loss = F.cross_entropy(logits.double().transpose(1, 2), right, reduction="none")
        self.right.append(right_tokens(logits, right.cpu()).numpy())
        self.loss.append(loss.mean(1).cpu().numpy())
        self.margin.append(margins(logits, right).mean(1).cpu().numpy())

    def add_fidelity(self, parts: Sequence[tuple[str, float, float]]) -> None:
        """Add a batch's closeness of several parts."""
        for kind, first, second in parts:
            old = self.sums.get(kind, (0.0, 0.0))
            self.sums[kind] = old[0] + first, old[1] + second

    def closeness(self) -> dict[str, float]:
        """``r2`` and ``overlap``; NaN for the one that does not apply."""
        left, whole = self.sums.get("r2", (0.0, 0.0))
        overlap, rows = self.sums.get("overlap", (0.0, 0.0))
        nan = float("nan")
        return {"r2": 1 - left / whole if whole else nan, "overlap": overlap / rows if rows else nan}


@dataclass(frozen=True, eq=False, kw_only=True)
class Swaps(TableResult):
    """What ``names[0]`` answers with parts of ``names[1]``.

    ``table`` has one row per component, source and copy (of the untrained): ``partner``, ``n``, ``right``, ``exact``
    (the share), ``tokens`` (share of single targets), ``loss``, ``margin``, ``recovered``, ``r2``, ``overlap``,
    ``fitted``, ``p_untrained`` (for source "swapped"); the first row is the whole model. ``by_chain``: ``right`` of
    ``n`` with its interval by component, source, copy and carry-chain length. ``control``: the model of which fresh
    copies were drawn, and how many. :mod:`interp.compare.swap_components` explains columns and sources.
    """

    by_chain: pd.DataFrame
    names: tuple[str, str]
    control: tuple[str, int]
    n_fit: int

    @property
    def whole(self) -> pd.Series:
        """The row of the whole model."""
        return self.table.iloc[0]

    @cached_property
    def components(self) -> list[str]:
        return list(dict.fromkeys(self.table["component"].iloc[1:]))

    @cached_property
    def _rows(self) -> dict[Any, pd.DataFrame]:
        return dict(iter(self.table.groupby(["component", "source"], sort=False)))

    def rows(self, component: str, source: str = "swapped") -> pd.DataFrame:
        """The rows of one component and source. Raises UserError for an unknown one, with the closest."""
        known_name("component", component, self.components)
        known_name("source", source, SOURCES)
        return self._rows.get((component, source), self.table.iloc[:0])

    def swapped(self, component: str) -> pd.Series:
        """The row of a component with source "swapped"."""
        return self.rows(component).iloc[0]

    @property
    def able(self) -> bool:
        """Whether the whole model answers more than half of the problems right: of less there is nothing to keep."""
        return bool(self.whole["exact"] > ABLE)

    def kept(self) -> list[str]:
        """Components whose swap keeps at least 95% of the whole model's exact answers; none for a model that is not
        :attr:`able`."""
        if not self.able:
            return []
        return [name for name in self.components if self.swapped(name)["right"] >= KEPT * self.whole["right"]]

    def most(self) -> str | None:
        """The swapped component that holds most of what layers write; None if no such component was swapped."""
        return next((name for name in (EVERYTHING, "L0.attn", "all outputs") if name in self.components), None)


def _sentence(found: Swaps) -> str:
    """How much is right with most of what layers write exchanged, and which swaps keep the answers."""
    (a, b), whole = found.names, found.cell("exact", source=CLEAN)
    if not found.able:
        return (
            f"{a} answers {whole} of the problems right, no more than {ABLE:.0%}, so there is nothing that a part of "
            f"{b} could keep."
        )
    n, most = len(found.components), found.most()
    kept = f"{len(found.kept())} of {counted(n, 'part')} keep{'s' * (n == 1)} at least {KEPT:.0%} of its own answers"
    if most is None:
        return f"{a} answers {whole} of the problems right, and of the parts taken from {b}, {kept}."
    swapped, untrained = found.cell("exact", component=most, source="swapped"), found.rows(most, "untrained")["exact"]
    control, note = NO_CONTROL, ""
    if len(untrained):
        control = f"{counted(len(untrained), 'untrained model')}: at most {in_percent(float(untrained.max()))}"
        note = "" if swapped.value > untrained.max() else ", no more than with an untrained model's"
    return (
        f"With {most} taken from {b}, {a} answers {swapped} of the problems right{note} (its own: {whole}; {control}); "
        f"{kept}."
    )


def compute_swaps(
    outcomes: Mapping[tuple[str, str, int], SwapOutcome],
    partners: Mapping[str, str],
    fitted: Mapping[str, int],
    chains: Int[np.ndarray, " n"],
    names: tuple[str, str],
    control: tuple[str, int],
    n_fit: int,
    provenance: Provenance,
) -> Swaps:
    """The tables, from the answers of every run. ``partners`` and ``fitted`` are given by component."""
    seed = provenance.resampling_seed
    losses = {key: np.concatenate(outcome.loss) for key, outcome in outcomes.items()}
    rows, chain_rows = [], []
    order = {source: place for place, source in enumerate((CLEAN, *SOURCES))}
    names_in_order = {name: place for place, name in enumerate(("", *partners))}
    for key in sorted(outcomes, key=lambda key: (names_in_order[key[0]], order[key[1]], key[2])):
        component, source, copy = key
        right = np.concatenate(outcomes[key].right)
        whole = np.asarray(right.all(1))
        place = {"component": component, "source": source, "copy": copy}
        row: dict[str, Any] = place | {"partner": partners.get(component, "")} | _proportion(whole)
        row |= {"tokens": right.mean(), "loss": losses[key].mean()}
        row["margin"] = np.concatenate(outcomes[key].margin).mean()
        if component:
            ablated, clean = losses[component, "ablated", 0], losses["", CLEAN, 0]
            row |= dict(zip(_MORE[:3], recovered_share(losses[key], ablated, clean, seed, _NO_HARM), strict=True))
            row |= outcomes[key].closeness() | {"fitted": float(fitted[component])}
        if source == "swapped":
            null = np.array([loss.mean() for other, loss in losses.items() if other[:2] == (component, "untrained")])
            row["p_untrained"] = permutation_p(-float(row["loss"]), -null) if len(null) else float("nan")
        rows.append(row)
        for chain in np.unique(chains):
            chain_rows.append(place | {"chain": int(chain)} | _proportion(whole[chains == chain]))
    table, chain_table = pd.DataFrame(rows).reindex(columns=[*KEYS, *_COLUMNS, *_MORE]), pd.DataFrame(chain_rows)
    found = Swaps(
        "", table, provenance, KEYS, (EXACT, RECOVERED),
        by_chain=chain_table, names=names, control=control, n_fit=n_fit,
    )  # fmt: skip
    return found.saying(_sentence(found))


def _proportion(right: np.ndarray) -> dict[str, Any]:
    found = proportion(right)
    return {"n": found.n, "right": found.successes} | EXACT.cells(found.value, found.low, found.high)


# ---- what it shows

_SHOWN = {  # source: its name in the picture
    "swapped": "the other's",
    "itself": "its own, mapped alike",
    "shuffled": "the other's on another problem",
    "ablated": "ablated",
    "untrained": "untrained model's",
}


@drawing(Swaps)
def swaps_view(result: Swaps, measure: str = "exact") -> Picture:
    """The share right with the other model's part in its place, with controls, and by carry-chain length.

    Raises:
        UserError: an unknown measure.
    """
    of = result.measure(measure)
    if not result.components:
        raise UserError("There is no swap to draw.")
    ends = tuple(f"{measure}_{end}" for end in ENDS)
    series = []
    for source, name in _SHOWN.items():
        rows = result.table[result.table["source"] == source].copy()
        if rows.empty or (measure == "recovered" and source == "ablated"):
            continue
        rows[[measure, ends[0]]] = rows[[measure, ends[0]]].astype(float).clip(lower=-1.0)
        own = source == "swapped"
        said = ("partner", "tokens", "loss", "r2", "overlap", "fitted", "p_untrained") if own else ("tokens", "loss")
        control = source not in ("swapped", "itself")
        series.append(Series.of(rows, "component", measure, name, ends if own else (), said, control=control))
    whole = float(result.whole["exact"]) if measure == "exact" else 1.0
    marks = Points(
        "part replaced", of.heading, series=series, scale="share" if measure == "exact" else "",
        lines=[Line(whole, f"{result.names[0]} whole")], across=True,
    )  # fmt: skip
    by_chain = result.by_chain[result.by_chain["source"] == "swapped"]
    share, count = (
        by_chain.pivot_table(index="component", columns="chain", values=value).reindex(index=result.components)
        for value in ("exact", "n")
    )
    chains = Grid(
        "columns that a carry passes through", title="exact match by longest carry chain", values=share.to_numpy(),
        rows=result.components, columns=[str(chain) for chain in share.columns], said={"n": count.to_numpy()},
    )  # fmt: skip
    note = f"Maps fitted on {result.n_fit:,} other problems; bars: 95% intervals"
    if result.control[1]:
        note += f"; untrained: {result.control[1]} freshly drawn models, of {result.control[0] or 'those given'}"
    return Picture([marks, chains], columns=1, note=note)
