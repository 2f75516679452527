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

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from interp.core import runs
from interp.core.controls import untrained_twin
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
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
from interp.core.probe import Scalar, group, probe
from interp.core.results import Provenance, Result
from interp.core.stats import Proportion, proportion
from interp.core.task_checks import require_able, resolve_task
from interp.core.thresholds import ABLE
from interp.core.views import Points, values_and_controls
from models.calls import Count, Seed
from models.errors import known_name
from models.number_format import in_percent
from models.tasks import CyclicGroup, Task, TaskLike, group_of
from models.transformer import HookedModel, model_name

PROGRAMS = ("clock", "pizza")
CHANGES = ("scaled", "interchanged")
FACTORS = (0.5, 2.0)
RELABELLINGS = 499
NONE, UNDECIDED = "no Fourier program", "undecided between clock and pizza"


@dataclass(frozen=True, eq=False)
class GroupProgram(Result):
    """``answers``: Dataset over (change, example) of the log of the answer of the ``model`` and of its ``untrained``
    twin (-1 for a token that is no element), and over (change, program, example) of what is ``predicted``.
    ``frequencies`` are those changed, ``causal`` what the model's answers owe to them, ``marks`` those of its logits.
    """

    model: str
    group: str
    frequencies: tuple[int, ...]
    answers: xr.Dataset
    causal: EmbeddingTest
    marks: GroupMarks
    provenance: Provenance

    def share(self, program: str, change: str, of: str = "model") -> Proportion:
        """How often the model (``of="untrained"``: its twin) gives the program's answer, where the two differ."""
        at = self.answers.sel(change=known_name("change", change, CHANGES))
        predicted = at.predicted.transpose("program", "example").values
        agrees = at[of].values == predicted[PROGRAMS.index(known_name("program", program, PROGRAMS))]
        return proportion(agrees[predicted[0] != predicted[1]])

    @property
    def _is_fourier(self) -> bool:
        """Whether most answers need the frequencies, and need nothing else of the embeddings."""
        alone, without = self.causal.replaced.values()
        return bool(self.frequencies) and alone.low > ABLE and without.high < ABLE

    @property
    def followed(self) -> str:
        """The program whose answers the model gives to most changed embeddings of both kinds; empty for none."""
        found = [name for name in PROGRAMS if min(self.share(name, change).low for change in CHANGES) > ABLE]
        return found[0] if len(found) == 1 else ""

    @property
    def verdict(self) -> str:
        """The program that the model follows and has the marks of: "clock", "pizza", or why none."""
        if not self._is_fourier:
            return NONE
        return self.followed if self.followed and self.followed == self.marks.program else UNDECIDED

    def sentence(self) -> str:
        if not self.frequencies:
            return f"{self.model}: {NONE}; no frequency of its embeddings stands out."
        needs = f"{frequencies_text(len(self.frequencies))} of {self.group}: {self.causal.clause()}"
        marks = f"a {self.marks.program}'s" if self.marks.program else "those of neither"
        follow = f"follow the {self.followed}" if self.followed else "follow neither in both changes"
        read = f" Its marks are {marks} ({self.marks.clause()}); its answers to changed embeddings {follow}."
        return f"{self.model}: {self.verdict} ({needs}).{read} {' '.join(map(self._told, CHANGES))}"

    def _told(self, change: str) -> str:
        """The shares of one change as a sentence."""
        clock, pizza = (self.share(program, change) for program in PROGRAMS)
        if not clock.n:
            return f"With one operand {change}, clock and pizza give the same answers."
        return (
            f"With one operand {change}, {clock} of the {clock.n:,} answers in which clock and pizza differ are the "
            f"clock's, and {pizza} the pizza's."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per change and program: the share of answers that are the program's, and of the untrained twin's."""
        rows = []
        for change in CHANGES:
            for program in PROGRAMS:
                found, blank = (self.share(program, change, of) for of in ("model", "untrained"))
                row = {"change": change, "program": program, "share": found.value, "low": found.low}
                rows.append(row | {"high": found.high, "n": found.n, "untrained": blank.value})
        return pd.DataFrame(rows)


def _pizza(found: GroupProgram) -> Estimate:
    """How often one operand with frequencies of several numbers gives the pizza's answer, where the programs differ."""
    share, blank = (found.share("pizza", "interchanged", of) for of in ("model", "untrained"))
    note = f"{found.verdict}; clock {in_percent(float(found.share('clock', 'interchanged').value))}"
    return Estimate(
        share.value, share.low, share.high, share.n, control=blank.value, control_note="untrained", note=note
    )


@probe(
    "Does a modular adder run a clock or a pizza?",
    needs=[group],
    scalar=Scalar("answers of a pizza", "share", _pizza, 0.01, asked_by=("compare_models",)),
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
    subjects = {"model": model, "untrained": untrained_twin(model, task, 1_000 + seed)}
    data: dict[str, Any] = {
        name: (("change", "example"), np.stack([_answers(each, task, of, kept, a, b, *changed[c]) for c in CHANGES]))
        for name, each in subjects.items()
    }
    predicted = np.stack([_predicted(of, kept, sizes, b, *changed[change]) for change in CHANGES])
    answers = xr.Dataset(
        data | {"predicted": (("change", "program", "example"), predicted)},
        coords={"change": list(CHANGES), "program": list(PROGRAMS)},
    )
    provenance = Provenance(n, seed, "pairs with one operand changed")
    marks = group_marks(model, task, of, n, seed, logits)
    return GroupProgram(model_name(model), of.name, kept, answers, causal, marks, provenance)


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
def group_program_view(result: GroupProgram) -> Points:
    """How often the answers are each program's, by change, next to an untrained twin's."""
    table = result.to_dataframe()
    shown = table[["low", "high", "untrained"]].assign(value=table["share"])
    shown.insert(0, "answers", table["program"] + "'s, " + table["change"])
    return values_and_controls(shown)
