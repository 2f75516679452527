"""Frequencies of embeddings, neurons and logits over the group in which a task computes.

    fourier_spectrum(model)                  share of the embeddings' variance at each frequency of the digit
    fourier_spectrum(model, of="neurons")    of what the last MLP's units hold at the query, over all pairs
    fourier_spectrum(model, of="logits")     of the logits, over all pairs and answers: cos(w_k (a + b - c))

The group is addition or multiplication modulo a number (:mod:`models.tasks.named.cyclic_groups`): frequencies are over
the logs of its elements. In any other task the embeddings' frequencies are those over the digits' values. A table of
rows may stand in place of a model.

The control gives the elements random labels, the same to both operands and the answer. A frequency is *kept* if its
share lies above the largest share that any frequency has in 95% of such relabellings; of embeddings, those that stand
out in the same way once the kept ones are taken out are kept as well. Of a model's embeddings, the result also says how
many answers stay right with the kept frequencies alone, and without them
(:mod:`interp.core.modular.embedding_replacement`).

Source: Nanda et al. 2023 ("Progress measures for grokking via mechanistic interpretability"), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.estimate import SHARE, Estimate
from interp.core.modular.embedding_replacement import EmbeddingTest, all_rows
from interp.core.modular.group_spectra import (
    GroupSpectrum,
    element_tokens,
    kept_frequencies_test,
    pair_spectrum,
    table_spectrum,
)
from interp.core.probe import Summary, digits, probe
from interp.core.results import Provenance
from interp.core.significance import permutation_p
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.probes.circle_fit import RELABELLINGS, Table
from interp.probes.circle_geometry import as_table
from models.calls import Seed
from models.errors import UserError, known_name
from models.number_format import in_percent, p_value
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel

OF = ("embeddings", "neurons", "logits")
FEW_RELABELLINGS = 99  # of activations over all pairs, which are larger than a table of embeddings


MEASURES = (
    Measure("share", SHARE, ("shuffled",), "share of the variance, and what 95% of shuffled tables stay below"),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class FourierSpectrum(TableResult):
    """Variance over the elements, by frequency (turns over all of them).

    ``table`` over (frequency): ``share`` of the total variance; ``share_shuffled``, the 95% quantile of the share among
    random relabellings; ``period`` in tokens; and ``kept``, whether the frequency stands out. ``p_value``: chance that
    some frequency has a share as large as the largest here after relabelling. ``power`` [frequency, dimension] is in
    the squared units of the activations. ``unit_share`` [frequency, dimension]: share of each dimension's own variance;
    ``phase`` [operand, frequency, dimension], neurons only: the angle in radians at which the unit's response to a, and
    to b, is largest. ``causal``: of a model's embeddings, the answers with the kept frequencies alone and without them.
    A frequency alone is an ellipse, in any plane and of any size; :func:`interp.circle_fit` moves the digits onto one
    even circle.
    """

    p_value: float
    power: xr.DataArray
    unit_share: xr.DataArray | None = None
    phase: xr.DataArray | None = None
    causal: EmbeddingTest | None = None

    @property
    def main(self) -> int:
        """Frequency with the largest share."""
        return int(self.table.share.idxmax())

    @property
    def kept(self) -> tuple[int, ...]:
        """Frequencies whose share lies above the largest of 95% of the relabellings, and those that stand out without
        them."""
        return tuple(self.table.frequency.values[self.table.kept.values].tolist())

    def units(self) -> pd.DataFrame:
        """One row per dimension: its main frequency, the share of its variance there, and the phases of a and b.

        Raises:
            UserError: a spectrum that is not of neurons.
        """
        if self.unit_share is None or self.phase is None:
            raise UserError('Only a spectrum of neurons has units: fourier_spectrum(model, of="neurons").')
        best = self.unit_share.values.argmax(0)
        rows = np.arange(len(best))
        return pd.DataFrame(
            {
                "unit": rows,
                "frequency": self.unit_share.frequency.values[best],
                "share": self.unit_share.values[best, rows],
                "phase_a": self.phase.values[0, best, rows],
                "phase_b": self.phase.values[1, best, rows],
            }
        )


def _main_frequency(found: FourierSpectrum) -> Estimate:
    main = found.cell("share", frequency=found.main)
    return replace(main, control_note="95% of shuffled tables", note=f"frequency {found.main}")


@probe(
    "Which frequencies do embeddings, neurons or logits have?",
    needs=[digits],
    summary=Summary("variance of the digits at one frequency", "share", _main_frequency, 0.01, asked_by=()),
)
def fourier_spectrum(
    model: HookedModel | Table,
    *,
    of: str = "embeddings",
    task: TaskLike | None = None,
    seed: Seed = 0,
) -> FourierSpectrum:
    """Discrete Fourier spectrum over the elements of the task's group, without the mean.

    Args:
        model: a model, or a table [n, D] of rows in the place of its embeddings.
        of: "embeddings" of the digits; "neurons", the units of the last MLP at the query that predicts the answer; or
            "logits" of the answers. The last two need a task that adds or multiplies modulo a number.
        task: what the model's tokens mean; default its own.
        seed: of the control's random relabellings, 2,000 of embeddings, else 99.

    Embeddings: ``power_k = c |sum_d x_d exp(-2 pi i k d / n)|^2 / n^2`` with c = 2, or 1 for k = n / 2, so that
    frequencies 1..n/2 add up to the variance (Parseval). Neurons: frequency k has all products of 1, cos w_k a, sin w_k
    a with 1, cos w_k b, sin w_k b; products of two frequencies belong to none, so shares add up to at most 1. Logits,
    centred over the answers: the components cos and sin of w_k (a + b - c), which are all that a group's program needs.

    Limits. Frequencies are those of a *closed* circle through all rows. An arc of another length leaks into
    neighbouring frequencies: use :func:`interp.circle_fit` for its stride.

    Raises:
        UserError: a task without digits, or without a group for "neurons" and "logits"; fewer than 3 rows, NaN, or
            values that are all alike.
    """
    of_rows = known_name("kind of values", of, OF) == "embeddings"
    subject: Any = model
    if not of_rows:
        resolved = resolve_task(subject, task)
        spectrum, values, phase = pair_spectrum(subject, resolved, of, FEW_RELABELLINGS, seed)
        source = f"pairs, control of {FEW_RELABELLINGS:,} relabellings"
        found = _result(spectrum, f" of the {of}", Provenance(spectrum.n**2, seed, source, "exhaustive"))
        if phase is None:
            return found
        variance = np.maximum(values.var((0, 1)), np.finfo(float).tiny)
        coords = {"frequency": found.power.frequency}
        return replace(
            found,
            unit_share=xr.DataArray(spectrum.power / variance, dims=("frequency", "dimension"), coords=coords),
            phase=xr.DataArray(phase, dims=("operand", "frequency", "dimension"), coords=coords),
        )
    if not hasattr(subject, "run_with_hooks"):
        rows = as_table(subject, 3, 1, "A Fourier spectrum")
        return _result(table_spectrum(rows, RELABELLINGS, seed), "", all_rows(len(rows), RELABELLINGS, seed))
    resolved = resolve_task(subject, task)
    rows = as_table(subject.W_E[element_tokens(resolved)], 3, 1, "A Fourier spectrum")
    spectrum = table_spectrum(rows, RELABELLINGS, seed)
    causal = kept_frequencies_test(subject, resolved, rows, spectrum.kept, seed)
    return _result(spectrum, "", all_rows(len(rows), RELABELLINGS, seed), causal)


def _result(
    found: GroupSpectrum, of: str, provenance: Provenance, causal: EmbeddingTest | None = None
) -> FourierSpectrum:
    frequency = np.arange(1, found.n // 2 + 1)
    columns = {
        "period": found.n / frequency,
        "share": found.share,
        "share_shuffled": np.quantile(found.null, 0.95, axis=0),
        "kept": np.isin(frequency, found.kept),
    }
    table = xr.Dataset({name: ("frequency", each) for name, each in columns.items()}, {"frequency": frequency})
    power = xr.DataArray(found.power, dims=("frequency", "dimension"), coords={"frequency": frequency})
    p = permutation_p(float(found.share.max()), found.null.max(-1))
    said = _finding(found, of, p, causal)
    return FourierSpectrum(said, table, provenance, ("frequency",), MEASURES, p_value=p, power=power, causal=causal)


def _finding(found: GroupSpectrum, of: str, p: float, causal: EmbeddingTest | None) -> str:
    top, draws = int(found.share.argmax()) + 1, len(found.null)
    period, share = f"(period {found.n / top:.3g} tokens)", f"{in_percent(found.share.max())} of the variance{of}"
    count = round(p * (draws + 1)) - 1
    as_much = f"{f'{count:,}' if count else 'none'} of {draws:,} shuffled tables "
    as_much += f"{'has' if count < 2 else 'have'} as much at some frequency ({p_value(p)})"
    if not found.kept:
        return f"No frequency stands out: the largest, {top} {period}, carries {share}; {as_much}."
    said = f"Frequency {top} {period} carries {share}; {as_much}."
    if causal is None:
        return said
    alone, without = causal.replaced.values()
    which, them = ("it", "it") if len(found.kept) == 1 else (f"the {len(found.kept)} that stand out", "them")
    return (
        f"{said} With {which} alone {alone} of {alone.n:,} answers are right, and without {them} {without} (with all, "
        f"{in_percent(causal.clean.value, counted=True)})."
    )
