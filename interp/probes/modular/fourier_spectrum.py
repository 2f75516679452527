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

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.modular.embedding_replacement import EmbeddingTest, all_rows, owed_to
from interp.core.modular.group_spectra import (
    GroupSpectrum,
    element_tokens,
    frequencies_text,
    kept_frequencies_test,
    pair_spectrum,
    table_spectrum,
)
from interp.core.probe import Scalar, digits, probe
from interp.core.results import Provenance, Result
from interp.core.significance import permutation_p
from interp.core.task_checks import resolve_task
from interp.core.views import Bars, Picture, Series
from interp.probes.circle_fit import RELABELLINGS, Table
from interp.probes.circle_geometry import as_table
from models.calls import Seed
from models.errors import UserError, known_name
from models.number_format import in_percent, p_value
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel

OF = ("embeddings", "neurons", "logits")
FEW_RELABELLINGS = 99  # of activations over all pairs, which are larger than a table of embeddings


@dataclass(frozen=True, eq=False)
class FourierSpectrum(Result):
    """Variance over the elements, by frequency (turns over all of them).

    ``power`` [frequency, dimension] is in the squared units of the activations; ``share`` [frequency]: share of the
    total variance; ``null`` [frequency]: the 95% quantile of the share among random relabellings; ``largest``: that of
    the largest share; ``p_value``: chance that some frequency has a share as large as the largest here after
    relabelling. ``unit_share`` [frequency, dimension]: share of each dimension's own variance; ``phase`` [operand,
    frequency, dimension], neurons only: the angle in radians at which the unit's response to a, and to b, is largest.
    ``causal``: of a model's embeddings, the answers with the kept frequencies alone and without them. A frequency alone
    is an ellipse, in any plane and of any size; :func:`interp.circle_fit` moves the digits onto one even circle.
    ``relabellings``: how many were drawn.
    """

    power: xr.DataArray
    share: xr.DataArray
    null: xr.DataArray
    p_value: float
    provenance: Provenance
    largest: float = 1.0
    of: str = "table"
    n_elements: int = 0
    more: tuple[int, ...] = ()
    unit_share: xr.DataArray | None = None
    phase: xr.DataArray | None = None
    causal: EmbeddingTest | None = None
    relabellings: int = 0

    @property
    def main(self) -> int:
        """Frequency with the largest share."""
        return int(self.share.frequency[int(np.argmax(self.share.values))])

    @property
    def kept(self) -> tuple[int, ...]:
        """Frequencies whose share lies above the largest of 95% of the relabellings, and ``more``: those that stand
        out without them."""
        found = self.share.frequency.values[self.share.values > self.largest]
        return tuple(sorted({*self.more, *(int(k) for k in found)}))

    def sentence(self) -> str:
        top, n = self.main, self.n_elements or self.provenance.n
        share, below = (float(part.sel(frequency=top)) for part in (self.share, self.null))
        of = "" if self.of in ("table", "embeddings") else f" of the {self.of}"
        text = (
            f"Frequency {top} (period {n / top:.3g} tokens) carries {in_percent(share)} of the variance{of}. 95% of "
            f"shuffled tables have less than {100 * below:.2g}% there; {self._as_much()} at some frequency "
            f"({p_value(self.p_value)})."
        )
        if self.causal is not None and not self.kept:
            clean = f"{self.causal.clean} of {self.causal.clean.n:,} answers are right"
            return f"{text} No frequency stands out, so that nothing was taken out; {clean}."
        if self.causal is not None:
            stand = f"{frequencies_text(len(self.kept))} stand{'s' if len(self.kept) == 1 else ''} out"
            text += (
                f" {stand[0].upper()}{stand[1:]}; {self.causal.clause()}. "
                "A frequency alone is an ellipse, in any plane; circle_fit moves the digits onto one even circle."
            )
        return text

    def _as_much(self) -> str:
        """How many of the relabellings have as large a share at some frequency, as words."""
        count = round(self.p_value * (self.relabellings + 1)) - 1
        return f"{f'{count:,}' if count else 'none'} of {self.relabellings:,} {'has' if count < 2 else 'have'} as much"

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

    def to_dataframe(self) -> pd.DataFrame:
        frame = pd.DataFrame({"frequency": self.share.frequency, "share": self.share, "null_95": self.null})
        frame.insert(1, "period", (self.n_elements or self.provenance.n) / frame["frequency"])
        return frame


def _main_frequency(found: FourierSpectrum) -> Estimate:
    shuffled = float(found.null.sel(frequency=found.main))
    note = f"frequency {found.main}"
    return Estimate(float(found.share.max()), control=shuffled, control_note="95% of shuffled tables", note=note)


@probe(
    "Which frequencies do embeddings, neurons or logits have?",
    needs=[digits],
    scalar=Scalar("variance of the digits at one frequency", "share", _main_frequency, 0.01, asked_by=()),
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
        found = _result(spectrum, of, Provenance(spectrum.n**2, seed, source, "exhaustive"))
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
        return _result(table_spectrum(rows, RELABELLINGS, seed), "table", all_rows(len(rows), RELABELLINGS, seed))
    resolved = resolve_task(subject, task)
    rows = as_table(subject.W_E[element_tokens(resolved)], 3, 1, "A Fourier spectrum")
    spectrum = table_spectrum(rows, RELABELLINGS, seed)
    causal = kept_frequencies_test(subject, resolved, rows, spectrum.kept, seed)
    return replace(_result(spectrum, of, all_rows(len(rows), RELABELLINGS, seed)), causal=causal)


def _result(found: GroupSpectrum, of: str, provenance: Provenance) -> FourierSpectrum:
    coords = {"frequency": np.arange(1, found.n // 2 + 1)}
    return FourierSpectrum(
        power=xr.DataArray(found.power, dims=("frequency", "dimension"), coords=coords),
        share=xr.DataArray(found.share, dims=("frequency",), coords=coords),
        null=xr.DataArray(np.quantile(found.null, 0.95, axis=0), dims=("frequency",), coords=coords),
        p_value=permutation_p(float(found.share.max()), found.null.max(-1)),
        provenance=provenance,
        largest=found.largest,
        more=found.more,
        of=of,
        n_elements=found.n,
        relabellings=len(found.null),
    )


@drawing(FourierSpectrum)
def spectrum_view(result: FourierSpectrum) -> Picture:
    """Share of the variance by frequency; 95% of shuffled tables have less than their bars."""
    frequency = result.share.frequency.values
    series = [
        Series("table", frequency, result.share.values),
        Series("95% of shuffled tables have less", frequency, result.null.values, control=True),
    ]
    bars = Bars("frequency (turns over the table)", "share of the variance", "", series)
    share = in_percent(float(result.share.sel(frequency=result.main)))
    title = f"Frequency {result.main} holds {share} of the variance; of shuffled tables {result._as_much()} at some"
    title += " frequency"
    return Picture([bars], title=title, note=owed_to(result.causal if result.kept else None))
