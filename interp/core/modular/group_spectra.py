"""Frequencies over the elements of a group, with relabellings as the control: what probes of modular adders share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float

from interp.core import runs
from interp.core.model_checks import has_mlp
from interp.core.modular.embedding_replacement import EmbeddingTest, embedding_test
from interp.core.places import Place
from models.errors import UserError
from models.tasks import CyclicGroup, Task, group_of
from models.transformer import HookedModel, in_block

ROTATED = 24  # principal directions of neurons whose relabelled spectra are computed


@dataclass(frozen=True, eq=False)
class GroupSpectrum:
    """``power`` [frequency 1..n/2, dimension] of ``total`` variance; ``null`` [draw, frequency]: relabelled shares;
    ``more``: frequencies that stand out once those above :attr:`largest` are taken out."""

    n: int
    power: np.ndarray
    total: float
    null: np.ndarray
    more: tuple[int, ...] = ()

    @cached_property
    def share(self) -> Float[np.ndarray, " frequency"]:
        return self.power.sum(-1) / self.total

    @cached_property
    def largest(self) -> float:
        """The largest share that any frequency has in 95% of the relabellings."""
        return float(np.quantile(self.null.max(-1), 0.95))

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Frequencies whose share lies above :attr:`largest`, and ``more``."""
        return tuple(sorted({*self.more, *(int(k) + 1 for k in np.flatnonzero(self.share > self.largest))}))


def frequencies_text(n: int) -> str:
    """A number of frequencies in words: "one frequency", "27 frequencies"."""
    return "one frequency" if n == 1 else f"{n or 'no'} frequencies"


def relabelled(
    n: int, resamples: int, seed: int, shares: Callable[[np.ndarray], np.ndarray]
) -> Float[np.ndarray, "draw frequency"]:
    """``shares(order)`` of random orders of the elements."""
    rng = np.random.default_rng(seed)
    return np.stack([shares(rng.permutation(n)) for _ in range(resamples)])


# ---- embeddings


def element_tokens(task: Task) -> list[int]:
    """The digits' tokens, in the order of the group's logs where the task has a group."""
    tokens = list(task.digit_tokens)
    try:
        return [tokens[element] for element in group_of(task).elements]
    except UserError:
        return tokens


def table_power(values: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "frequency D"]:
    """``c |sum_d x_d exp(-2 pi i k d / n)|^2 / n^2`` of mean-free rows, c = 2, or 1 for k = n / 2: Parseval's sum over
    k = 1..n/2 is the variance."""
    n = len(values)
    power = 2 * np.abs(np.fft.rfft(values, axis=0)[1:]) ** 2 / n**2
    if n % 2 == 0:
        power[-1] /= 2
    return power


def table_spectrum(rows: Float[np.ndarray, "n D"], resamples: int, seed: int) -> GroupSpectrum:
    """The spectrum of rows along their index. Raises UserError for rows that are all alike."""
    values = rows - rows.mean(0)
    if np.abs(values).max() <= 0:
        raise UserError("All rows are alike: there is no variance to split into frequencies.")
    power, n = table_power(values), len(values)
    null = relabelled(n, resamples, seed, lambda order: table_power(values[order]).sum(-1) / power.sum())
    found = GroupSpectrum(n, power, float(power.sum()), null)
    return replace(found, more=_stepped_down(values, found.kept, resamples, seed))


def _stepped_down(
    values: Float[np.ndarray, "n D"], kept: tuple[int, ...], resamples: int, seed: int
) -> tuple[int, ...]:
    """Frequencies that stand out of what is left without the kept ones, again and again: large ones hide small ones.

    Each step asks for a share above the largest of 95% of the relabellings. Relabelled rows lose the same frequencies,
    so that shares are among the same number of others.
    """
    more: tuple[int, ...] = ()
    while kept and len(kept) + len(more) < len(values) // 2:
        taken = np.array([*kept, *more]) - 1
        left = values - only_frequencies(values, (*kept, *more))
        if np.abs(left).max() <= 1e-5 * np.abs(values).max():  # nothing but float32 rounding
            break

        def shares(order: np.ndarray) -> np.ndarray:
            power = table_power(left[order]).sum(-1)  # noqa: B023
            power[taken] = 0  # noqa: B023
            return power / power.sum()

        null = relabelled(len(values), resamples, seed, shares)
        here = np.flatnonzero(shares(np.arange(len(values))) > np.quantile(null.max(-1), 0.95)) + 1
        if not len(here):
            break
        more += tuple(int(k) for k in here)
    return more


def only_frequencies(values: Float[np.ndarray, "n *D"], frequencies: tuple[int, ...]) -> Float[np.ndarray, "n *D"]:
    """The part of mean-free values, along their first axis, that has these frequencies."""
    spectrum = np.fft.rfft(values, axis=0)
    spectrum[np.setdiff1d(np.arange(len(spectrum)), frequencies)] = 0
    return np.fft.irfft(spectrum, n=len(values), axis=0)


def kept_frequencies_test(
    model: HookedModel, task: Task, rows: Float[np.ndarray, "n D"], kept: tuple[int, ...], seed: int
) -> EmbeddingTest:
    """Right answers with the embeddings (``rows``, in the order of :func:`element_tokens`) reduced to the kept
    frequencies, and without these."""
    mean = rows.mean(0)
    part = only_frequencies(rows - mean, kept)
    tested = {
        "with these frequencies alone": torch.from_numpy(mean + part),
        "without them": torch.from_numpy(rows - part),
    }
    return embedding_test(model, task, element_tokens(task), tested, seed)


# ---- all pairs of elements


def pair_values(
    model: HookedModel, task: Task, group: CyclicGroup, of: str
) -> Float[np.ndarray, "order order dimension"]:
    """Units of the last MLP at the query ("neurons"), or the answers' logits centred over the answers ("logits"), of
    all pairs of elements in the order of their logs; the answers too are in that order."""
    tokens, query = task.encode(group.pairs()), task.query_positions[0]
    if of == "neurons":
        hook = in_block(model.cfg.n_layers - 1, "mlp.hook_post")
        held, _ = runs.read(model, tokens, [Place(hook, query)], [query])
        values = held[0]
    else:
        logits = runs.run(model, tokens, queries=[query])[:, 0]
        values = logits[:, element_tokens(task)]
        values = values - values.mean(-1, keepdim=True)
    return values.double().cpu().numpy().reshape(group.order, group.order, -1)


def right_logs(group: CyclicGroup) -> np.ndarray:
    """The log of every pair's answer, [order, order]."""
    at = torch.arange(group.order)
    return group.combine(at[:, None], at[None]).numpy()


def pair_power(values: Float[np.ndarray, "m m D"]) -> tuple[np.ndarray, np.ndarray]:
    """(power [frequency, dimension] of all components with one frequency; phases [operand, frequency, dimension]).

    Frequency k has the products of 1, cos and sin of w_k a with 1, cos and sin of w_k b, the constant aside.
    """
    m = len(values)
    of_a = np.fft.rfft(values, axis=0) / m  # [frequency of a, b, D]
    alone_a, alone_b = of_a.mean(1), np.fft.rfft(values.mean(0), axis=0) / m
    powers = []
    for k in range(1, m // 2 + 1):
        wave = np.exp(-2j * np.pi * k * np.arange(m) / m) / m
        both, against = abs(wave @ of_a[k]) ** 2, abs(wave.conj() @ of_a[k]) ** 2
        single = abs(alone_a[k]) ** 2 + abs(alone_b[k]) ** 2
        # Parseval counts k and -k, which are one where 2 k = m.
        powers.append(single + both if 2 * k == m else 2 * (single + both + against))
    phase = np.stack([-np.angle(alone_a[1:]), -np.angle(alone_b[1:])])
    return np.stack(powers), phase


def sum_power(values: Float[np.ndarray, "m m c"], group: CyclicGroup) -> Float[np.ndarray, " frequency"]:
    """Power of cos and sin of w_k (a + b - c) in values over a, b and c, summed over c as a unit's is."""
    m = group.order
    at = np.arange(m)
    right = right_logs(group)
    by_offset = np.array([values[at[:, None], at[None], (right - offset) % m].mean() for offset in at])
    return m * table_power(by_offset[:, None] - by_offset.mean())[:, 0]


def pair_spectrum(
    model: HookedModel, task: Task, of: str, resamples: int, seed: int
) -> tuple[GroupSpectrum, np.ndarray, np.ndarray | None]:
    """(the spectrum of neurons or logits, their values, the neurons' phases); see :func:`pair_values`.

    Raises:
        UserError: a task without a group, a model without an MLP, or values that are the same for all pairs.
    """
    group = group_of(task)
    if of == "neurons" and not has_mlp(model.cfg):
        raise UserError("This model has no MLP, and so no neurons.")
    values = pair_values(model, task, group, of)
    free = values - values.mean((0, 1))
    m = group.order
    total = float((free**2).sum()) / m**2
    if not total > 0:
        raise UserError(f"The {of} are the same for all pairs: there is no variance to split into frequencies.")
    if of == "logits":
        shares = lambda order: sum_power(free[order][:, order][..., order], group) / total  # noqa: E731
        null = relabelled(m, resamples, seed, shares)
        return GroupSpectrum(m, sum_power(free, group)[:, None], total, null), values, None
    power, phase = pair_power(free)
    # Power summed over units is the same in any rotation of them. The directions of largest variance stand for all:
    # shares of their own variance vary more than those of many directions, so that no frequency stands out by this.
    flat = free.reshape(m * m, -1)
    directions = np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :ROTATED]
    reduced = (flat @ directions).reshape(m, m, -1)
    within = float((reduced**2).sum()) / m**2
    null = relabelled(m, resamples, seed, lambda order: pair_power(reduced[order][:, order])[0].sum(-1) / within)
    return GroupSpectrum(m, power, total, null), values, phase
