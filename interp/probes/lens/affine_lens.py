"""What two lenses have in common that move a stream into the last one's basis before they read it.

    logits_at(stream) = ln_final(T stream) W_U + b_U

with one affine map T for each point, the same at every position. T is found on some problems, and read on others: half
of the problems find it, the other half is read, by this lens, by a control of the same form and by the logit lens
(T = 1), as in :mod:`interp.probes.lens.logit_lens`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.key_roles import target_labels
from interp.core.named_places import stream_points
from interp.core.results import Provenance, Result
from interp.core.samples import draw
from interp.core.significance import holm, sign_test
from interp.core.stats import LEVEL, bootstrap_interval
from interp.core.views import Picture, Points, Series
from interp.probes.lens.logit_lens import Translators, lens_table, measured, read_out
from models.errors import UserError
from models.number_format import counted, in_percent, in_percent_with, p_value
from models.tasks import Task
from models.transformer import HookedModel, model_name

LOGIT = "logit lens"
FEWEST = 16  # problems that a map is found on
_ENDS = ("", "_low", "_high")


@dataclass(frozen=True, eq=False)
class TranslatedLens(Result):
    """``table``: Dataset over (lens, point, target) with the measures of
    :class:`interp.probes.lens.logit_lens.LogitLens` on problems that the lens was not found on, and over (lens,
    point) ``divergence``, the mean KL of all targets, with ``divergence_low`` and ``divergence_high``. The lenses are
    the one asked about, its control and the logit lens, in this order.

    ``gain`` over (point): by how much the share of right tokens is larger than by the better of the other two, which is
    ``against``; ``value`` with ``low``, ``high`` over problems, and ``p``, of the exact test of in how many problems it
    is larger and in how many smaller, corrected by Holm for the number of points. ``translators`` are the maps that
    were found: "matrix" [point, in, out] and "bias" [point, out].

    ``base_rate`` is the share of right tokens, on the problems that are read, of always saying what is most common on
    those that the maps were found on, target by target. ``helps`` [point] is where the lens gives more right tokens
    than the other two (corrected p below 0.05) and, with all of its interval, than that.
    """

    name: str
    table: xr.Dataset
    gain: xr.Dataset
    translators: xr.Dataset
    found_on: int
    provenance: Provenance
    base_rate: float = float("nan")

    @property
    def lens(self) -> str:
        return str(self.table.lens.values[0])

    @property
    def helps(self) -> Bool[np.ndarray, " point"]:
        more = (self.gain.value.values > 0) & (self.gain.p.values < 1 - LEVEL)
        return more & ~(self.table["overall_low"].sel(lens=self.lens).values <= self.base_rate)

    def sentence(self) -> str:
        control = str(self.table.lens.values[1])
        at = int(np.argmax(np.where(self.helps, self.gain.value.values, -np.inf)))
        point = str(self.gain.point.values[at])
        known = not np.isnan(self.base_rate)  # not of results that earlier versions stored
        most_common = f"always saying the most common one, right in {in_percent(self.base_rate)}" if known else ""
        said = (
            f"on none of {counted(len(self.gain.point), 'stream')} does the {self.lens} give more right tokens than "
            f"the {LOGIT}, than the control{' and than ' * known}{most_common}, as far as these problems show"
        )
        if self.helps.any():
            shares = {}
            for lens in self.table.lens.values:
                value, low, high = (float(self.table[f"overall{end}"].sel(lens=lens)[at]) for end in _ENDS)
                shares[str(lens)] = in_percent_with(value, low, high)
            said = (
                f"read by the {self.lens}, the right token leads in {shares[self.lens]} of the answers at {point}, "
                f"where that helps most, by the {LOGIT} in {shares[LOGIT]}, and by the control ({control}) in "
                f"{shares[control]} ({p_value(float(self.gain.p[at]))}, corrected for "
                f"{counted(len(self.gain.point), 'stream')}{'; ' * known}{most_common})"
            )
        end = in_percent(float(self.table.overall[0, -1]))
        return (
            f"{self.name}: {said}. At the end it leads in {end}. Maps were found on {self.found_on:,} problems, and "
            f"used on {self.provenance.n:,} others."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per lens, point and target."""
        kept = [name for name in self.table.data_vars if "target" in self.table[name].dims]
        return self.table[kept].to_dataframe().reset_index()


def translated(
    model: HookedModel,
    task: Task,
    problems: Any,
    n: int,
    seed: int,
    lens: str,
    control: str,
    find: Callable[[Int[Tensor, "n pos"], dict[str, str], list[int]], tuple[Translators, Translators]],
    most: int | None = None,
) -> TranslatedLens:
    """Find a lens and its control on half of the problems, at most ``most``, and read the other half by them and by the
    logit lens.

    Raises:
        UserError: too few different problems, or as :func:`interp.probes.lens.logit_lens`.
    """
    sample = draw(task, problems, n, seed)
    first = np.sort(np.unique(sample.tokens.cpu().numpy(), axis=0, return_index=True)[1])
    if len(first) < 2 * FEWEST:
        raise UserError(f"A {lens} needs at least {2 * FEWEST} different problems, not {len(first):,}.")
    order = torch.from_numpy(np.random.default_rng(sample.provenance.resampling_seed).permutation(first))
    found_on, read_on = order[: len(order) // 2][:most], order[len(order) // 2 :]
    points, queries = stream_points(model), list(task.query_positions)
    own, other = find(sample.tokens[found_on], points, queries)
    lenses = {lens: own, control: other, LOGIT: None}
    targets = task.targets(sample.problems).cpu()
    right = targets[read_on].numpy()
    base_rate = float((targets[found_on].mode(0).values == targets[read_on]).double().mean())
    read = list(read_out(model, sample.tokens[read_on], points, queries, lenses))
    labels, names = target_labels(task), list(points)
    measures = {each: measured((chunk[each] for chunk in read), right, names, labels) for each in lenses}
    again = sample.provenance.resampling_seed
    tables = []
    for each in measures.values():
        divergence = each.kl.mean(-1)
        ends = bootstrap_interval(divergence, again)
        overall = dict(zip(_ENDS, (divergence.mean(-1), *ends), strict=True))
        table = lens_table(each, right, names, labels, again)
        tables.append(table.assign({f"divergence{end}": ("point", value) for end, value in overall.items()}))
    right_by = np.stack([(each.answer == right).mean(-1) for each in measures.values()])  # [lens, point, problem]
    against = 1 + right_by[1:].mean(-1).argmax(0)
    gain = right_by[0] - np.take_along_axis(right_by, against[None, :, None], 0)[0]
    low, high = bootstrap_interval(gain, again)
    p = holm([sign_test(int((each > 0).sum()), int((each < 0).sum())) for each in gain])
    data = {"value": gain.mean(-1), "low": low, "high": high, "p": p, "against": np.array(list(lenses))[against]}
    maps = {
        "matrix": (("point", "in", "out"), own.matrix.float().cpu().numpy()),
        "bias": (("point", "out"), own.bias.float().cpu().numpy()),
    }
    return TranslatedLens(
        model_name(model),
        xr.concat(tables, pd.Index(list(lenses), name="lens")),
        xr.Dataset({key: ("point", value) for key, value in data.items()}, {"point": names}),
        xr.Dataset(maps, {"point": names}),
        len(found_on),
        replace(sample.provenance, n=len(read_on), source=f"{sample.provenance.source}, half of them read"),
        base_rate,
    )


def best_reading(found: TranslatedLens) -> Estimate:
    """The share of right answers by point; the value is that of the last stream but one, its control the logit lens."""
    names = [str(point) for point in found.table.point.values]
    own = [found.table[f"overall{end}"].sel(lens=found.lens).values.tolist() for end in _ENDS]
    plain = found.table.overall.sel(lens=LOGIT).values.tolist()
    parts = [Estimate(*row[:3], control=row[3], name=row[4]) for row in zip(*own, plain, names, strict=True)]
    before = parts[max(0, len(parts) - 2)]
    note = f"read at {before.name}"
    return Estimate(
        before.value, before.low, before.high, control=before.control, control_note=LOGIT, note=note, parts=tuple(parts)
    )


@drawing(TranslatedLens)
def translated_view(result: TranslatedLens) -> Picture:
    """Right answers and divergence from the final distribution by stream, for each lens."""
    views = []
    for name, title, scale in (
        ("overall", "right token leads (share)", "share"),
        ("divergence", "KL to the final distribution (nats)", ""),
    ):
        series = [
            Series(
                str(lens),
                result.table.point.values,
                *(result.table[name + end].sel(lens=lens).values for end in _ENDS),
                control=lens != result.lens,
            )
            for lens in result.table.lens.values
        ]
        views.append(Points("", "", title, series, scale))  # type: ignore[arg-type]
    return Picture(views, 1, note="All answer digits together, on problems that the maps were not found on", shared="x")
