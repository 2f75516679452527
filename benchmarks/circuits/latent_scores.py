"""Is a switch that is known to be there a latent of a dictionary? ``python -m benchmarks.circuits.whole``

In models of which some neurons are switches (:mod:`benchmarks.circuits.unit_methods`), dictionaries are trained on all
problems: sparse autoencoders of what the neurons say, and transcoders from the stream to what the MLP writes, with four
latents a neuron, each next to an untrained one. Neurons that switch between the same answers are one switch.

    told      how well the best latent, on or off, tells the two sides of a switch in all problems (balanced accuracy)
    is one    the share of switches for which it does so in 99%
    moved     the share of pairs on two sides in which the answer changes when that latent alone takes the other
              problem's value
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benchmarks.circuits.dictionary import LATENTS_A_NUMBER, train_dictionary
from benchmarks.circuits.subjects import SUBJECTS, TRUTH, Subject
from benchmarks.circuits.truth import FEW
from benchmarks.circuits.unit_methods import POST, PRE, STREAM, UnitCase, gaps

LATENTS = TRUTH.with_name("latents.json")
COLUMNS = ("subject", "dictionary", "told", "is one", "moved", "explained", "switches")
LEAST_WIDTH, STEPS, SURE = 64, 500, 0.99
SAE, TRANSCODER, NEURON, UNTRAINED = "sparse autoencoder", "transcoder", "the neuron", ", untrained"


def told_by(on: Bool[Tensor, "n latent"], sides: Bool[Tensor, "n switch"]) -> tuple[Tensor, Tensor]:
    """(balanced accuracy [switch] of the latent that tells its sides best, which latent that is)"""
    up, down = (on.double().T @ (side / side.sum(0)) for side in (sides.double(), (~sides).double()))
    best, which = (up - down).abs().max(0)
    return (1 + best) / 2, which


@torch.no_grad()
def moved(case: UnitCase, changes: Float[Tensor, "pair d_model switch"], apart: Bool[Tensor, "pair switch"]) -> float:
    """The mean over switches of the share of their pairs whose answer changes with the stream."""
    stream = case.clean[1]
    before, shares = case.answers(stream).argmax(-1), []
    for change, own in zip(changes.unbind(2), apart.T, strict=True):
        if own.any():
            shares.append((case.answers(stream + change).argmax(-1) != before)[own].double().mean())
    return float(torch.stack(shares).mean()) if shares else float("nan")


def judged(subject: Subject) -> list[tuple]:
    """A row for each dictionary; none where no neuron is a switch."""
    case, names = UnitCase(subject), (POST, STREAM, PRE, "hook_resid_mid", "hook_mlp_out")
    post, _, pre, mid, out, right = case.read_all(*names)
    width, middle = gaps(pre, right)
    neurons = width.gt(0).nonzero()[:, 0]
    if not len(neurons):
        return []
    sides = pre[:, neurons] > middle[neurons]
    distinct = {min(side.numpy().tobytes(), (~side).numpy().tobytes()): i for i, side in enumerate(sides.T)}
    chosen = torch.tensor(sorted(distinct.values()))
    sides, neurons = sides[:, chosen], neurons[chosen]
    ends = [
        dict(zip(names, case.read(tokens, *names), strict=True))
        for tokens in (case.clean_tokens, case.corrupted_tokens)
    ]
    apart = torch.logical_xor(*(end[PRE][:, neurons] > middle[neurons] for end in ends))
    w_out = case.own["W_out"]

    def through(change: Tensor, directions: Float[Tensor, "switch d_model"]) -> Tensor:
        return torch.einsum("ps, sd -> pds", change, directions)

    own = ends[1][POST][:, neurons] - ends[0][POST][:, neurons]
    rows = [(subject.name, NEURON, 1.0, 1.0, moved(case, through(own, w_out[neurons]), apart), np.nan, len(neurons))]
    for name, place, x, y in ((SAE, POST, post, None), (TRANSCODER, "hook_resid_mid", mid, out)):
        for steps in (STEPS, 0):
            coder = train_dictionary(x, steps, 0, y, LATENTS_A_NUMBER * post.shape[1])
            told, which = told_by(coder.latents(x) > 0, sides)
            change = torch.sub(*(coder.latents(end[place])[:, which] for end in ends[::-1])) * coder.out_scale
            directions = coder.decoder[:, which].T @ w_out if y is None else coder.decoder[:, which].T
            found = moved(case, through(change, directions), apart)
            scores = float(told.mean()), float((told >= SURE).double().mean()), found, coder.explained(x, y)
            rows.append((subject.name, name + UNTRAINED * (not steps), *scores, len(neurons)))
    return rows


def run_latents(subjects: Sequence[Subject] = SUBJECTS, say: Callable[[str], None] = print) -> pd.DataFrame:
    """One row per subject and dictionary, of models with few problems and an MLP of 64 neurons or more."""
    rows = []
    for subject in subjects:
        domain = subject.model.task.domain
        if domain is not None and domain.combinations <= FEW and (subject.model.cfg.d_mlp or 0) >= LEAST_WIDTH:
            rows += judged(subject)
            say(subject.name)
    return pd.DataFrame(rows, columns=list(COLUMNS))
