"""What two lenses have in common that move a stream into the last one's basis before they read it.

    logits_at(stream) = ln_final(T stream) W_U + b_U

with one affine map T for each point, the same at every position. T is found on some problems, and read on others: half
of the problems find it, the other half is read, by this lens, by a control of the same form and by the logit lens
(T = 1), as in :mod:`interp.probes.lens.logit_lens`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.estimate import Estimate
from interp.core.key_roles import ALL_TARGETS, target_labels
from interp.core.named_places import stream_points
from interp.core.samples import draw
from interp.core.significance import holm, sign_test
from interp.core.stats import LEVEL, bootstrap_interval
from interp.core.table_result import Measure, TableResult
from interp.probes.lens import logit_lens
from interp.probes.lens.logit_lens import Translators, by_point, lens_table, measured, read_out
from models.errors import UserError
from models.number_format import counted, in_percent, p_value
from models.tasks import Task
from models.transformer import HookedModel, model_name

LOGIT = "logit lens"
FEWEST = 16  # problems that a map is found on
KEYS = ("lens", "point", "target")
ACCURACY, *OTHERS = logit_lens.MEASURES
MEASURES = (
    replace(ACCURACY, controls=(*ACCURACY.controls, "most_common")),
    *OTHERS,
    Measure("gain", "share", title="more right tokens than the better of the others"),
)


def helps(table: xr.Dataset) -> Bool[np.ndarray, " point"]:
    """Where the first lens gives more right tokens than the two others (corrected p below 0.05) and, with all of its
    interval, than always saying what is most common."""
    own = table.isel(lens=0).sel(target=ALL_TARGETS)
    more = (own.gain > 0) & (own.p_value < 1 - LEVEL)
    return (more & ~(own.accuracy_low <= own.accuracy_most_common)).values


def _finding(found: TableResult, name: str) -> str:
    table, helping = found.table, helps(found.table)
    lens, control, plain = table.lens.values.tolist()
    streams = counted(len(table.point), "stream")
    own = table.isel(lens=0).sel(target=ALL_TARGETS)
    most_common = in_percent(float(own.accuracy_most_common))
    if not helping.any():
        return (
            f"{name}: on none of {streams} does the {lens} give more right tokens than the {plain}, than the control "
            f"({control}) and than the most common token ({most_common}), as far as these problems show."
        )
    at = int(np.argmax(np.where(helping, own.gain, -np.inf)))
    point = str(table.point.values[at])
    shares = {each: found.cell("accuracy", lens=each, point=point, target=ALL_TARGETS) for each in table.lens.values}
    return (
        f"{name}: at {point}, {shares[lens]} of the right tokens lead by the {lens}, {shares[plain]} by the "
        f"{plain} and {shares[control]} by the control, {control} ({p_value(float(own.p_value[at]))}, corrected for "
        f"{streams}). The most common token is right in {most_common}."
    )


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
) -> TableResult:
    """Find a lens and its control on half of the problems, at most ``most``, and read the other half by them and by the
    logit lens.

    The table is a Dataset over (lens, point, target), with the measures of :func:`interp.probes.lens.logit_lens` on
    problems that the lens was not found on; the lenses are the one asked about, its control and the logit lens, in this
    order. ``accuracy_most_common`` [target] is the share of right tokens, on the problems that are read, of always
    saying what is most common on those that the maps were found on. Of the lens asked about and all targets together,
    ``gain`` says by how much the share of right tokens is larger than by the better of the other two, which is
    ``against``, with its interval over problems, and ``p_value`` is of the exact test of in how many problems it is
    larger and in how many smaller, corrected by Holm for the number of points.

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
    common = [most_common_right(*each) for each in zip(targets[found_on].numpy().T, right.T, strict=True)]
    read = list(read_out(model, sample.tokens[read_on], points, queries, lenses))
    labels, names = target_labels(task), list(points)
    measures = {each: measured((chunk[each] for chunk in read), right, names, labels) for each in lenses}
    again = sample.provenance.resampling_seed
    tables = [lens_table(each, right, names, labels, again) for each in measures.values()]
    table = xr.concat(tables, pd.Index(list(lenses), name="lens"))
    right_by = np.stack([(each.answer == right).mean(-1) for each in measures.values()])  # [lens, point, problem]
    against = 1 + right_by[1:].mean(-1).argmax(0)
    gain = right_by[0] - np.take_along_axis(right_by, against[None, :, None], 0)[0]
    low, high = bootstrap_interval(gain, again)
    p = holm([sign_test(int((each > 0).sum()), int((each < 0).sum())) for each in gain])
    data = {"gain": gain.mean(-1), "gain_low": low, "gain_high": high, "p_value": p}
    gained = xr.Dataset({key: (KEYS, np.reshape(value, (1, -1, 1))) for key, value in data.items()})
    gained = gained.assign_coords(lens=[lens], point=names, target=[ALL_TARGETS])
    table = table.merge(gained.reindex(lens=table.lens, target=table.target))
    table["against"] = ("point", np.array(list(lenses))[against])
    table["accuracy_most_common"] = ("target", [*common, np.mean(common)])
    source = f"{sample.provenance.source}, half of them read; maps found on {len(found_on):,} others"
    provenance = replace(sample.provenance, n=len(read_on), source=source)
    found = TableResult("", table, provenance, KEYS, MEASURES)
    return found.saying(_finding(found, model_name(model)))


def most_common_right(found: Int[np.ndarray, " n"], read: Int[np.ndarray, " other"]) -> float:
    """The share right of always saying the token that is most common in ``found``, or one of several at random."""
    tokens, counts = np.unique(found, return_counts=True)
    tied = tokens[counts == counts.max()]
    return float(np.isin(read, tied).mean() / len(tied))


def best_reading(found: TableResult) -> Estimate:
    """:func:`~interp.probes.lens.logit_lens.by_point` of the lens asked about; the control is the logit lens."""
    own, plain = (by_point(found, lens=lens) for lens in (str(found.table.lens.values[0]), LOGIT))
    pairs = zip((own, *own.parts), (plain, *plain.parts), strict=True)
    value, *parts = (replace(one, control=other.value, control_note=LOGIT) for one, other in pairs)
    return replace(value, parts=tuple(parts))
