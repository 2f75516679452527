"""Which program a modular adder runs: a clock, a pizza or neither, by embeddings that no number has.

On the numbers themselves all programs agree. Here the embedding of the first operand is changed in the frequencies that
the embeddings stand out in (:func:`interp.fourier_spectrum`), and nowhere else:

    scaled        its part in these frequencies is multiplied by 1/2 or by 2
    interchanged  its part in each frequency is that of another number, drawn for each frequency

Each program says what the answer then is. With ``x_k`` the changed point of the first operand in frequency k, ``y_k =
exp(i w_k b)`` that of the second, and ``g_k`` the size of frequency k in the logits of the unchanged model:

    clock    logit_c = sum_k g_k Re(x_k y_k exp(-i w_k c))                 the angles are added
    pizza    logit_c = sum_k g_k |u_k| Re((u_k / |u_k|)^2 exp(-i w_k c)),  u_k = (x_k + y_k) / 2, the angle of a mean

Agreement is counted where the two give different answers. A program is *followed* if, for both changes, the lower end
of the interval of its share lies above one half (``ABLE``); chance is one in as many answers as there are. It is asked
only of a model that is right on most pairs. A model *has no Fourier program* unless most answers stay right with the
kept frequencies alone, and most become wrong without them: a table of all sums is one. The control is an untrained twin
under the same changes.

A trained model need not do with such embeddings what it does with numbers, so that following no program rules none out.
The verdict names a program only where the model follows it and has its marks, gradient symmetricity and distance
irrelevance (:func:`interp.group_symmetry`), as well. The published pizza (model A) has a pizza's marks and follows
neither: that is undecided. Source of programs and marks: Zhong et al. 2023, "The Clock and the Pizza".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core import runs
from interp.core.controls import untrained_twin
from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.modular.embedding_replacement import EmbeddingTest
from interp.core.modular.gradient_symmetricity import GroupMarks, group_marks
from interp.core.modular.group_spectra import (
    element_tokens,
    frequencies_text,
    kept_frequencies_test,
    pair_spectrum,
    table_spectrum,
)
from interp.core.places import Place
from interp.core.probe import Summary, group, probe
from interp.core.results import Provenance
from interp.core.stats import proportion
from interp.core.table_result import Measure, TableResult, table_view
from interp.core.task_checks import require_able, resolve_task
from interp.core.thresholds import ABLE
from interp.core.views import Picture
from models.calls import Count, Seed
from models.number_format import in_percent
from models.tasks import CyclicGroup, Task, TaskLike, group_of
from models.transformer import HookedModel, model_name

PROGRAMS = ("clock", "pizza")
FACTORS = (0.5, 2.0)
RELABELLINGS = 499
NONE, UNDECIDED = "no Fourier program", "undecided between clock and pizza"


MEASURES = (Measure("share", SHARE, ("untrained",), "share of answers that are the program's"),)


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupProgram(TableResult):
    """A row for each change and program: how often the model gives the program's answer where the two differ.

    ``frequencies`` are those changed, ``causal`` what the model's answers owe to them, ``marks`` those of its logits.
    """

    frequencies: tuple[int, ...]
    causal: EmbeddingTest
    marks: GroupMarks

    @property
    def followed(self) -> str:
        """The program whose answers the model gives to most changed embeddings of both kinds; empty for none."""
        least = self.table.groupby("program")["share_low"].agg(lambda low: low.min(skipna=False))
        found = [name for name in PROGRAMS if least[name] > ABLE]
        return found[0] if len(found) == 1 else ""

    @property
    def verdict(self) -> str:
        """The program that the model follows and has the marks of: "clock", "pizza", or why none."""
        alone, without = self.causal.replaced.values()
        if not (self.frequencies and alone.low > ABLE and without.high < ABLE):
            return NONE
        return self.followed if self.followed and self.followed == self.marks.program else UNDECIDED

    def _finding(self, model: str) -> str:
        alone, without = self.causal.replaced.values()
        if not self.frequencies:
            return f"{model}: {NONE}; no frequency of its embeddings stands out."
        if self.verdict == NONE:
            return (
                f"{model}: {NONE}; of {self.causal.clean.n:,} answers, {alone} are right with "
                f"{frequencies_text(len(self.frequencies))} of the embeddings alone, and {without} without them."
            )
        marks = f"a {self.marks.program}'s marks" if self.marks.program else "the marks of neither"
        clock, pizza = (self.cell("share", change="interchanged", program=each) for each in PROGRAMS)
        answers = f"of {clock.n:,} answers to an operand with several numbers' frequencies"
        shares = f"{pizza} are the pizza's and {clock} the clock's, where these differ; {pizza.against} and"
        shares += "" if clock.control is None else f" {Estimate(clock.control, unit=SHARE)}"
        if not clock.n:
            answers, shares = "to an operand with several numbers' frequencies", "both give the same answers"
        return f"{model}: {self.verdict} ({answers}, {shares}). It has {marks}."


def _pizza(found: GroupProgram) -> Estimate:
    """How often one operand with frequencies of several numbers gives the pizza's answer, where the programs differ."""
    clock, pizza = (found.cell("share", change="interchanged", program=each) for each in PROGRAMS)
    return replace(pizza, note=f"{found.verdict}; clock {in_percent(clock.value)}")


@probe(
    "Does a modular adder run a clock or a pizza?",
    needs=[group],
    summary=Summary("answers of a pizza", "share", _pizza, 0.01, asked_by=("compare_models",)),
)
def group_program(model: HookedModel, *, task: TaskLike | None = None, n: Count = 2048, seed: Seed = 0) -> GroupProgram:
    """Which of two programs predicts a model's answers when one operand is no number any more.

    Args:
        n: pairs of each change, none of them twice.
        seed: of these and of the 499 relabellings that say which frequencies stand out.

    Cost: four runs on ``n`` sequences and one with gradients, and one on all pairs.

    Raises:
        UserError: a task that is no addition or multiplication modulo a number, or a model that is not right on most
            pairs.
    """
    task = resolve_task(model, task)
    of = group_of(task)
    rows = model.W_E[element_tokens(task)].detach().double().cpu().numpy()
    kept = table_spectrum(rows, RELABELLINGS, seed).kept
    causal = kept_frequencies_test(model, task, rows, kept, seed)
    require_able(model_name(model), causal.clean.value, "answers")
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(of.order**2, generator=generator)[:n]
    a, b, n = drawn // of.order, drawn % of.order, len(drawn)
    factors = torch.tensor(FACTORS)[torch.randint(len(FACTORS), (n,), generator=generator)]
    others = torch.randint(of.order, (n, len(kept)), generator=generator)
    #: Of each pair and frequency, the number whose point it becomes, and the factor.
    changed = {
        "scaled": (a[:, None].expand(-1, len(kept)), factors[:, None].expand(-1, len(kept))),
        "interchanged": (others, torch.ones(n, len(kept))),
    }
    in_logits, logits, _ = pair_spectrum(model, task, "logits", 1, seed)
    sizes = np.sqrt(in_logits.share[[frequency - 1 for frequency in kept]])
    twin, rows = untrained_twin(model, task, 1_000 + seed), []
    for change, (numbers, by) in changed.items():
        own, blank = (_answers(each, task, of, kept, a, b, numbers, by) for each in (model, twin))
        rows += _shares(change, own, blank, _predicted(of, kept, sizes, b, numbers, by))
    found = GroupProgram(
        "", pd.DataFrame(rows), Provenance(n, seed, "pairs with one operand changed"), ("change", "program"), MEASURES,
        frequencies=kept, causal=causal, marks=group_marks(model, task, of, n, seed, logits),
    )  # fmt: skip
    return found.saying(found._finding(model_name(model)))


def _shares(
    change: str,
    answers: Int[np.ndarray, " n"],
    untrained: Int[np.ndarray, " n"],
    predicted: Int[np.ndarray, "program n"],
) -> list[dict[str, Any]]:
    """A row for each program: the shares of its answers among those where the programs' differ."""
    differ, rows = predicted[0] != predicted[1], []
    for program, own in zip(PROGRAMS, predicted, strict=True):
        share, blank = (proportion((each == own)[differ]) for each in (answers, untrained))
        cells = MEASURES[0].cells(share.value, share.low, share.high, untrained=blank.value)
        rows.append({"change": change, "program": program} | cells | {"n": share.n})
    return rows


def _answers(
    model: Any,
    task: Task,
    of: CyclicGroup,
    frequencies: tuple[int, ...],
    a: Int[Tensor, " n"],
    b: Int[Tensor, " n"],
    numbers: Int[Tensor, "n frequency"],
    factors: Float[Tensor, "n frequency"],
) -> Int[np.ndarray, " n"]:
    """The log of the answer to each pair, with the frequencies of ``numbers`` in the first operand; -1 where the answer
    is not an element."""
    tokens = element_tokens(task)
    rows = model.W_E.detach()[tokens].double()
    shift = torch.zeros(len(a), rows.shape[1], dtype=torch.float64)
    for i, frequency in enumerate(frequencies):
        turn = 2 * torch.pi * frequency * torch.arange(of.order).double() / of.order
        basis = torch.linalg.qr(torch.stack((turn.cos(), turn.sin()), 1))[0]
        wave = basis @ (basis.T @ rows.cpu())
        shift = shift + factors[:, i, None] * wave[numbers[:, i]] - wave[a]
    elements = torch.tensor(of.elements)
    encoded = task.encode(torch.stack((elements[a], elements[b]), 1))
    first = next(i for i, role in enumerate(task.roles) if role.kind == "operand" and role.index == 0)
    moved = Place("hook_embed", first).put(lambda own, rows: own + shift[rows][:, None].to(own))
    logits = runs.run(model, encoded, [moved], [task.query_positions[0]])[:, 0].cpu()
    logs = torch.full((logits.shape[1],), -1).index_copy(0, torch.tensor(tokens), torch.arange(of.order))
    return logs[logits.argmax(-1)].numpy()


def _predicted(
    of: CyclicGroup,
    frequencies: tuple[int, ...],
    sizes: Float[np.ndarray, " frequency"],
    b: Int[Tensor, " n"],
    numbers: Int[Tensor, "n frequency"],
    factors: Float[Tensor, "n frequency"],
) -> Int[np.ndarray, "program n"]:
    """The log of each program's answer."""
    turn = 2j * np.pi * np.array(frequencies, dtype=int) / of.order
    x = factors.numpy() * np.exp(turn * numbers.numpy())
    y = np.exp(turn * (of.sign * b.numpy()[:, None]))
    mean = (x + y) / 2
    sums = {"clock": x * y, "pizza": mean**2 / np.maximum(np.abs(mean), np.finfo(float).tiny)}
    answers = np.exp(turn * np.arange(of.order)[:, None])
    return np.stack([((sizes * sums[name]) @ answers.conj().T).real.argmax(1) for name in PROGRAMS])


@drawing(GroupProgram)
def group_program_view(result: GroupProgram) -> Picture:
    """How often the answers are each program's, by change, next to an untrained copy's."""
    answers = result.table["program"] + "'s, " + result.table["change"]
    return table_view(replace(result, table=result.table.assign(answers=answers), keys=("answers",)))
