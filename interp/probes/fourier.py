"""Frequencies of embeddings, neurons and logits over the group in which a task computes.

    fourier_spectrum(model)                  share of the embeddings' variance at each frequency of the digit
    fourier_spectrum(model, of="neurons")    of what the last MLP's units hold at the query, over all pairs
    fourier_spectrum(model, of="logits")     of the logits, over all pairs and answers: cos(w_k (a + b - c))

The group is addition or multiplication modulo a number (:mod:`models.tasks.groups`): frequencies are over the logs of
its elements. In any other task the embeddings' frequencies are those over the digits' values. A table of rows may stand
in place of a model.

The control gives the elements random labels, the same to both operands and the answer. A frequency is *kept* if its
share lies above the largest share that any frequency has in 95% of such relabellings. Of a model's embeddings, the
result also says how many answers stay right with the kept frequencies alone, and without them
(:mod:`interp.core.replaced_embeddings`).

Source: Nanda et al. 2023 ("Progress measures for grokking via mechanistic interpretability"), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float

from interp.core import runs
from interp.core.answers import Answer
from interp.core.model import HookedModel
from interp.core.probe import Scalar, digits, probe
from interp.core.problems import resolve_task
from interp.core.replaced_embeddings import EmbeddingTest, embedding_test
from interp.core.results import Provenance, Result
from interp.core.sites import Site
from interp.core.stats import permutation_p
from interp.probes.embeddings import RESAMPLES, Table, all_rows
from interp.probes.geometry import as_table
from models.errors import UserError, known_name
from models.numerals import in_percent
from models.part_names import in_block
from models.tasks.base import Task
from models.tasks.groups import CyclicGroup, group_of

OF = ("embeddings", "neurons", "logits")
FEW_RESAMPLES = 99  # of activations over all pairs, which are larger than a table of embeddings
ROTATED = 24  # principal directions of neurons whose relabelled spectra are computed


@dataclass(frozen=True, eq=False)
class FourierSpectrum(Result):
    """Variance over the elements, by frequency (turns over all of them).

    ``power`` [frequency, dimension] is in the squared units of the activations; ``share`` [frequency]: share of the
    total variance; ``null`` [frequency]: the 95% quantile of the share among random relabellings; ``largest``: that of
    the largest share; ``p_value``: chance that some frequency has a share as large as the largest here after
    relabelling. ``unit_share`` [frequency, dimension]: share of each dimension's own variance; ``phase`` [operand,
    frequency, dimension], neurons only: the angle in radians at which the unit's response to a, and to b, is largest.
    ``causal``: of a model's embeddings, the answers with the kept frequencies alone and without them.
    """

    power: xr.DataArray
    share: xr.DataArray
    null: xr.DataArray
    p_value: float
    provenance: Provenance
    largest: float = 1.0
    of: str = "table"
    n_elements: int = 0
    unit_share: xr.DataArray | None = None
    phase: xr.DataArray | None = None
    causal: EmbeddingTest | None = None

    @property
    def main(self) -> int:
        """Frequency with the largest share."""
        return int(self.share.frequency[int(np.argmax(self.share.values))])

    @property
    def kept(self) -> tuple[int, ...]:
        """Frequencies whose share lies above the largest of 95% of the relabellings."""
        return tuple(int(k) for k in self.share.frequency.values[self.share.values > self.largest])

    def sentence(self) -> str:
        top, n = self.main, self.n_elements or self.provenance.n
        share, below = (float(part.sel(frequency=top)) for part in (self.share, self.null))
        of = "" if self.of in ("table", "embeddings") else f" of the {self.of}"
        text = (
            f"Frequency {top} (period {n / top:.3g} tokens) carries {in_percent(share)} of the variance{of}. 95% of "
            f"shuffled tables have less than {below:.2%} there, and {in_percent(self.p_value)} of shuffled tables have "
            "as much at some frequency."
        )
        if self.causal is not None:
            kept = f"{len(self.kept)} frequencies stand out" if self.kept else "No frequency stands out"
            text += f" {kept}; {self.causal.clause()}."
        return text

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


def _main_frequency(found: FourierSpectrum) -> Answer:
    shuffled = float(found.null.sel(frequency=found.main))
    note = f"frequency {found.main}"
    return Answer(float(found.share.max()), control=shuffled, control_note="95% of shuffled tables", note=note)


@probe(
    "Which frequencies do embeddings, neurons or logits have?",
    needs=[digits],
    scalar=Scalar("variance of the digits at one frequency", "share", _main_frequency, 0.01, asked_by=()),
)
def fourier_spectrum(
    model: HookedModel | Table,
    *,
    of: str = "embeddings",
    task: Task | None = None,
    seed: int = 0,
    resamples: int | None = None,
) -> FourierSpectrum:
    """Discrete Fourier spectrum over the elements of the task's group, without the mean.

    Args:
        model: a model, or a table [n, D] of rows in the place of its embeddings.
        of: "embeddings" of the digits; "neurons", the units of the last MLP at the query that predicts the answer; or
            "logits" of the answers. The last two need a task that adds or multiplies modulo a number.
        task: what the model's tokens mean; default its own.
        seed, resamples: random relabellings of the control; by default 2,000 of embeddings, else 99.

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
    if known_name("kind of values", of, OF) != "embeddings":
        return _over_pairs(model, resolve_task(cast(HookedModel, model), task), of, seed, resamples or FEW_RESAMPLES)
    resamples = resamples or RESAMPLES
    subject: Any = model
    is_table = not hasattr(subject, "run_with_hooks")
    resolved = None if is_table else resolve_task(subject, task)
    tokens = None if resolved is None else element_tokens(resolved)
    values = as_table(subject if tokens is None else subject.W_E[tokens], 3, 1, "A Fourier spectrum")
    n, mean = len(values), values.mean(0)
    values = values - mean
    if np.abs(values).max() <= 0:
        raise UserError("All rows are alike: there is no variance to split into frequencies.")
    rng = np.random.default_rng(seed)
    power = _power(values)
    null = np.stack([_power(values[rng.permutation(n)]).sum(-1) for _ in range(resamples)]) / power.sum()
    found = _spectrum(power, power.sum(), null, "table" if is_table else of, n, all_rows(n, resamples, seed))
    if resolved is None or tokens is None:
        return found
    kept = _only(values, found.kept)
    rows = {
        "with these frequencies alone": torch.from_numpy(mean + kept),
        "without them": torch.from_numpy(mean + values - kept),
    }
    return replace(found, causal=embedding_test(subject, resolved, tokens, rows, seed))


def element_tokens(task: Task) -> list[int]:
    """The digits' tokens, in the order of the group's logs where the task has a group."""
    tokens = list(task.digit_tokens)
    try:
        return [tokens[element] for element in group_of(task).elements]
    except UserError:
        return tokens


def _only(values: Float[np.ndarray, "n D"], frequencies: tuple[int, ...]) -> Float[np.ndarray, "n D"]:
    """The part of mean-free rows that has these frequencies."""
    spectrum = np.fft.rfft(values, axis=0)
    others = np.setdiff1d(np.arange(len(spectrum)), frequencies)
    spectrum[others] = 0
    return np.fft.irfft(spectrum, n=len(values), axis=0)


def _spectrum(
    power: np.ndarray, total: float, null: np.ndarray, of: str, n: int, provenance: Provenance, **more: Any
) -> FourierSpectrum:
    """The result from power [frequency, dimension] and the relabelled shares [draw, frequency]."""
    coords = {"frequency": np.arange(1, n // 2 + 1)}
    share = power.sum(-1) / total
    largest = null.max(-1)
    return FourierSpectrum(
        power=xr.DataArray(power, dims=("frequency", "dimension"), coords=coords),
        share=xr.DataArray(share, dims=("frequency",), coords=coords),
        null=xr.DataArray(np.quantile(null, 0.95, axis=0), dims=("frequency",), coords=coords),
        p_value=permutation_p(float(share.max()), largest),
        provenance=provenance,
        largest=float(np.quantile(largest, 0.95)),
        of=of,
        n_elements=n,
        **more,
    )


def _power(values: np.ndarray) -> np.ndarray:
    """Power [frequency, dimension] of mean-free rows, for frequencies 1..n/2."""
    n = len(values)
    power = 2 * np.abs(np.fft.rfft(values, axis=0)[1:]) ** 2 / n**2
    if n % 2 == 0:
        power[-1] /= 2
    return power


# ---- over all pairs


def pair_values(
    model: HookedModel, task: Task, group: CyclicGroup, of: str
) -> Float[np.ndarray, "order order dimension"]:
    """Units of the last MLP at the query, or the answers' logits centred over the answers, of all pairs of elements in
    the order of their logs; answers too are in that order."""
    tokens, query = task.encode(group.pairs()), task.query_positions[0]
    if of == "neurons":
        hook = in_block(model.cfg.n_layers - 1, "mlp.hook_post")
        held, _ = runs.read(model, tokens, [Site(hook, query)], [query])
        values = held[0]
    else:
        logits = runs.run(model, tokens, queries=[query])[:, 0]
        values = logits[:, element_tokens(task)]
        values = values - values.mean(-1, keepdim=True)
    return values.double().cpu().numpy().reshape(group.order, group.order, -1)


def _over_pairs(model: Any, task: Task, of: str, seed: int, resamples: int) -> FourierSpectrum:
    group = group_of(task)
    if of == "neurons" and (getattr(model.cfg, "attn_only", False) or not model.cfg.d_mlp):
        raise UserError("This model has no MLP, and so no neurons.")
    values = pair_values(model, task, group, of)
    values = values - values.mean((0, 1))
    total, m = float((values**2).sum()) / values.shape[0] ** 2, group.order
    if not total > 0:
        raise UserError(f"The {of} are the same for all pairs: there is no variance to split into frequencies.")
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(m) for _ in range(resamples)]
    provenance = Provenance(m * m, seed, f"pairs, control of {resamples:,} relabellings", rung="exhaustive")
    if of == "logits":
        spread = lambda x: _sum_power(x, group)  # noqa: E731
        null = np.stack([spread(values[order][:, order][..., order]) for order in orders]) / total
        return _spectrum(spread(values)[:, None], total, null, of, m, provenance)
    power, phase = _pair_power(values)
    # Power summed over units is the same in any rotation of them, and few directions hold nearly all of it.
    flat = values.reshape(m * m, -1)
    directions = np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :ROTATED]
    reduced = (flat @ directions).reshape(m, m, -1)
    null = np.stack([_pair_power(reduced[order][:, order])[0].sum(-1) for order in orders]) / total
    variance = np.maximum((values**2).mean((0, 1)), np.finfo(float).tiny)
    coords = {"frequency": np.arange(1, m // 2 + 1)}
    return _spectrum(
        power, total, null, of, m, provenance,
        unit_share=xr.DataArray(power / variance, dims=("frequency", "dimension"), coords=coords),
        phase=xr.DataArray(phase, dims=("operand", "frequency", "dimension"), coords=coords),
    )  # fmt: skip


def _pair_power(values: Float[np.ndarray, "m m D"]) -> tuple[np.ndarray, np.ndarray]:
    """(power [frequency, dimension] of all components with one frequency; phases [operand, frequency, dimension])."""
    m = len(values)
    of_a = np.fft.rfft(values, axis=0) / m  # [frequency of a, b, D]
    alone_a, alone_b = of_a.mean(1), np.fft.rfft(values.mean(0), axis=0) / m
    powers = []
    for k in range(1, m // 2 + 1):
        wave = np.exp(-2j * np.pi * k * np.arange(m) / m) / m
        both, against = wave @ of_a[k], wave.conj() @ of_a[k]
        single = 1 if 2 * k == m else 2
        mixed = abs(both) ** 2 * (1 if single == 1 else 2) + (0 if single == 1 else 2 * abs(against) ** 2)
        powers.append(single * (abs(alone_a[k]) ** 2 + abs(alone_b[k]) ** 2) + mixed)
    phase = np.stack([-np.angle(alone_a[1:]), -np.angle(alone_b[1:])])
    return np.stack(powers), phase


def _sum_power(values: Float[np.ndarray, "m m c"], group: CyclicGroup) -> Float[np.ndarray, " frequency"]:
    """Power of cos and sin of w_k (a + b - c) in values over a, b and c, summed over c as a unit's is."""
    m = group.order
    at = np.arange(m)
    right = (at[:, None] + group.sign * at[None]) % m
    by_offset = np.array([values[at[:, None], at[None], (right - offset) % m].mean() for offset in at])
    return m * _power(by_offset[:, None] - by_offset.mean())[:, 0]
