"""The chapters of a report, in the order in which one comes to understand a model.

A chapter is a question and a function that answers it for a model; an empty answer leaves the chapter out. Sentences
and figures come from probes, so the page says what is true of the model it is about.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from markupsafe import Markup

import models
from interp.causal.circuits import smallest_circuit
from interp.causal.patching import activation_patching
from interp.compare.across import compare_models
from interp.compare.compare import compare
from interp.core.controls import copies_to_draw
from interp.core.model import HookedModel
from interp.core.probe import columns, find_probe
from interp.core.problems import digit_rows
from interp.papers.headlines import table as headlines
from interp.probes.dynamics import training_dynamics
from interp.probes.embeddings import circle_fit
from interp.proofs import decision_curves
from interp.proofs.stored_certificates import stored_certificate
from interp.proofs.verdict import Verdict
from interp.site.explorer import static_view
from interp.site.gallery import facts as say
from interp.site.gallery.model_page import certificate_part, training_items
from interp.site.gallery.papers import PAPERS
from interp.site.gallery.probe_cells import SMALL, chain_part, parameter_part
from interp.site.gallery.render import commands, control, folded, paragraph, table
from interp.site.pages import figure_data
from models.errors import UserError
from models.evaluation import margins, predict, teacher_forcing
from models.registry import get_spec
from models.tasks import problem_pairs
from models.tasks.addition import FixedWidthAddition
from models.tasks.algorithms import column_layout
from models.tasks.problem_space import ProblemSpace
from models.tasks.two_digit import TwoDigitAddition

HARDEST = "9999999999+1"  # the longest carry chain that there is
ASKED = 5, 7  # the decision drawn is that of this answer digit, after this token
LEAD = "lead of the right digit (logits)"
OTHER = "adder-456"  # the model that others are compared with
#: One problem in so many is asked which algorithm it follows: a plausible wrong digit needs a column that adds up to
#: nine, which one problem in ten of a two-digit task has.
RARE = 25


@dataclass(frozen=True, eq=False)
class Shown:
    """A model on the page. Probes use ``n`` problems, drawn with ``seed``."""

    name: str
    model: HookedModel
    n: int
    seed: int

    @cached_property
    def entry(self) -> dict[str, Any] | None:
        """The model's entry in the zoo; None if it has none."""
        return models.zoo.read_entry(self.name) if self.name in models.zoo_names() else None

    @cached_property
    def certificate(self) -> Verdict | None:
        return None if self.entry is None else stored_certificate(self.name)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def registered(self) -> str:
        """The name of the model's architecture in the registry."""
        return str(self.model.name_or_path)

    @cached_property
    def twin(self) -> HookedModel | None:
        """The same model with numbers set by hand, if there is one."""
        name = f"{self.name}-by-hand"
        return models.build(name) if name in models.names() else None

    @property
    def learned(self) -> bool:
        return get_spec(self.registered).recipe is not None


@dataclass(frozen=True)
class Chapter:
    anchor: str
    heading: str
    answer: Callable[[Shown], list[Markup]]
    about: str = ""

    def items(self, shown: Shown) -> list[Markup]:
        """The answer: empty if the question does not apply, and the reason if a probe refuses to answer."""
        try:
            return self.answer(shown)
        except UserError as refused:
            return [paragraph(f"This question was refused: {refused}")]


def gather(name: str, n: int, seed: int) -> Shown:
    """Load a model to show. Raises a UserError if it cannot be loaded."""
    return Shown(name, models.load(name), n, seed)


def head(shown: Shown) -> str:
    """The first paragraph: what the model is, what it answers, and how far that is known to be right."""
    made = "learnt" if shown.learned else "set by hand"
    text = (
        f"{shown.name} is a transformer with {shown.parameters:,} free parameters, {made} for {shown.model.task.name}"
    )
    if isinstance(shown.model.task, FixedWidthAddition | TwoDigitAddition):
        text += ": it reads two numbers and writes the digits of their sum, units first"
    text += "."
    if shown.entry is None:
        return text
    if shown.certificate is not None and (proved := say.proved_words(shown.certificate)):
        return f"{text} {proved}"
    return f"{text} {say.score_words(shown.entry['score'])}."


def _asked(name: str, picture: str = "") -> Callable[[Shown], list[Markup]]:
    """A function that answers with a registered probe's figure; the whole sentence and the control are folded."""

    def answer(shown: Shown) -> list[Markup]:
        probe = find_probe(name)
        if probe.why_not(shown.model):
            return []
        found = probe.answer(shown.model, n=shown.n, seed=shown.seed)
        details = [paragraph(found.sentence())]
        copies, _ = copies_to_draw((shown.model,), 1, shown.seed)
        if probe.page is not None and probe.page.control and copies:
            details.append(control(probe.answer(copies[0], n=shown.n, seed=shown.seed).sentence()))
        return [figure_data(found.figure(picture)), folded("In words", Markup("").join(details))]

    return answer


def _right(shown: Shown) -> list[Markup]:
    known = []
    if isinstance(shown.model.task, FixedWidthAddition | TwoDigitAddition):
        known = list(chain_part(shown.model, None).items)
    proof = [] if shown.certificate is None else list(certificate_part(shown.name, shown.certificate).items)
    return [*proof, *known]


def _steps(shown: Shown) -> list[Markup]:
    return [static_view([shown.model, *([] if shown.twin is None else [shown.twin])], with_assets=False)]


def _decision(shown: Shown) -> list[Markup]:
    """The arc of the digits' embeddings, and which digit leads at every value of the number that attention writes."""
    items = []
    if shown.parameters <= SMALL:
        items.append(figure_data(circle_fit(shown.model.W_E[digit_rows(shown.model.task)]).figure()))
    with contextlib.suppress(UserError):  # if attention depends on digits, it does not write one number
        curves = decision_curves(shown.model, *ASKED)
        about = "Which digit leads depends on the number alone. Thick lines are what inputs reach."
        items += [paragraph(about), figure_data(curves.figure())]
    return items


@torch.no_grad()
def _hardest(shown: Shown) -> list[Markup]:
    """The answer to the problem with the longest carry chain, digit by digit."""
    task = shown.model.task
    if not isinstance(task, FixedWidthAddition):
        return []
    problem = task.as_problems([HARDEST])
    targets = task.targets(problem)
    written = predict(shown.model, problem, method="greedy", task=task)
    with teacher_forcing(shown.model, task) as logits_of:
        logits = logits_of(problem)
    lead = margins(logits, targets)[0]  # of the right token, given the right ones before it
    second = logits.clone().scatter_(-1, targets[..., None], float("-inf")).argmax(-1)[0]
    variables = {name: values[0].tolist() for name, values in task.variables(problem).items()}
    rows = []
    for column in range(len(variables["carry_in"])):
        rows.append(
            {
                "answer digit": f"s{column}",
                "digit sum": variables["digit_sum"][column],
                "carry in": variables["carry_in"][column],
                "right digit": int(targets[0, column]),
                "written": int(written[0, column]),
                LEAD: round(float(lead[column]), 3),
                "strongest other token": task.token_text(second[column]),
            }
        )
    (answer,) = task.decode(written)
    (right,) = task.decode(targets)
    verdict = "right" if answer == right else f"wrong: it is {right:,}"
    least = min(rows, key=lambda row: row[LEAD])
    said = "no number" if answer < 0 else f"{answer:,}"
    text = (
        f"{HARDEST.replace('+', ' + ')} = {said}, which is {verdict}. One carry runs through all ten columns. The "
        f"right digit's lead is least at {least['answer digit']}: {least[LEAD]} logits over "
        f"{least['strongest other token']}. This is one problem, run through the model."
    )
    return [paragraph(text), table(pd.DataFrame(rows))]


def _carry(shown: Shown) -> list[Markup]:
    """By how a carry arises: in one layer the edges that are enough for it, in more the streams that have it."""
    task = shown.model.task
    if columns(3)(shown.model, task):
        return []
    column = min(4, len(column_layout(task)) // 2)
    items = []
    for kind in ("made carry", "passed carry") if column > 1 else ("made carry",):
        pairs = problem_pairs(task, kind, column=column, n=min(shown.n, 256), seed=shown.seed)
        if shown.model.cfg.n_layers == 1:
            found = smallest_circuit(shown.model, pairs, groups="roles", seed=shown.seed)
        else:
            found = activation_patching(shown.model, pairs, seed=shown.seed)
        items += [figure_data(found.figure()), folded("In words", paragraph(found.sentence()))]
    return items


def _account(shown: Shown) -> list[Markup]:
    """The algorithm that the model follows under intervention, and where its paper says otherwise."""
    with contextlib.suppress(UserError):  # a task that does not define its domain
        shown = replace(shown, n=min(shown.n, ProblemSpace.of(shown.model.task).size // RARE))
    items = _asked("which_algorithm")(shown)
    paper = next((paper.key for paper in PAPERS if paper.name == get_spec(shown.registered).paper), None)
    rows = [
        {"where": line.where, "the paper": line.claim, "printed": line.printed, "measured": row.shown}
        for row in (headlines(paper).of_kind("behaviour").rows if paper else ())
        if row.label.startswith("differs") and (line := row.headline)
    ]
    if rows:
        text = f"{len(rows)} of the paper's statements on what models do differ from what was measured:"
        items += [paragraph(text), table(pd.DataFrame(rows))]
    return items


def _training(shown: Shown) -> list[Markup]:
    if shown.entry is None:
        return []
    items = training_items(shown.name, shown.entry)
    with contextlib.suppress(UserError):  # an entry without snapshots
        found = training_dynamics(shown.name, n=min(shown.n, 256), n_per_length=50)
        items += [figure_data(found.figure()), folded("In words", paragraph(found.sentence()))]
    return items


def _beside(shown: Shown) -> list[Markup]:
    """The model compared with its twin that was set by hand and with another paper's adder."""
    items, others = [], []
    if shown.twin is not None:
        others.append(shown.twin)
        pair = compare(shown.model, shown.twin, seed=shown.seed)
        items += [figure_data(pair.figure()), folded("In words", paragraph(pair.sentence()))]
    if OTHER in models.zoo_names() and shown.name != OTHER:
        others.append(models.load(OTHER))
    if not others:
        return items
    found = compare_models([shown.model, *others], n=min(shown.n, 300), seed=shown.seed)
    items += [figure_data(found.figure()), folded("In words", paragraph(found.sentence()))]
    return [*items, table(found.texts(), "Answers with intervals and controls")]


def _numbers(shown: Shown) -> list[Markup]:
    return list(parameter_part(shown.model).items) if 0 < shown.parameters <= SMALL else []


def _again(shown: Shown) -> list[Markup]:
    lines = {
        f"interp ask {shown.name}": "what else can be asked of it",
        f"interp explore {shown.name}": "the explorer on a page of its own",
        f"interp certify {shown.name}": "what can be said of every input",
        "interp gallery": "every model, result and notebook, as a site",
        "interp headlines": "the papers' numbers next to ours",
    }
    width = max(map(len, lines))
    return [commands([f"{line:<{width}}   # {does}" for line, does in lines.items()])]


CHAPTERS: Sequence[Chapter] = (
    Chapter(
        "right",
        "Is it right, on every input?",
        _right,
        "A test set says how often a model is right on problems like those in it. A certificate is a proof about all "
        "problems; anyone can check it again.",
    ),
    Chapter(
        "steps",
        "Step through an answer",
        _steps,
        "A single problem proves little; use this view to build intuition. Ablate a head or a neuron and see which "
        "digits change.",
    ),
    Chapter(
        "columns",
        "Which columns does each answer digit look at?",
        _asked("attention_by_role"),
        "A digit depends on the two digits of its own column and on the carry from the previous one. If the attention "
        "scores of the two columns lie ln 10 apart, one unit of the own column weighs as much as ten of the previous.",
    ),
    Chapter(
        "number",
        "What does attention write?",
        _asked("written_number"),
        "If everything that attention writes lies along one direction, and the own column counts ten times, then it "
        "writes one number: the decimal number that two columns spell. The carry can be read off next to the digit "
        "that was written before.",
    ),
    Chapter(
        "switches",
        "Which neurons detect the carry?",
        _asked("carry_units"),
        "A column that adds up to ten or more writes its total less ten. Something has to switch there.",
    ),
    Chapter(
        "digit",
        "How does a number become a digit?",
        _decision,
        "Where the digits' embeddings (rows 0 to 9 of the table W_E) lie on an arc, in order, an angle is a digit.",
    ),
    Chapter(
        "carry",
        "Which way does a carry come?",
        _carry,
        "Two problems differ in one carry. The previous column makes it (its digits add up to ten or more) or passes "
        "it on (they add up to nine). Parts of one run are put into the other. A circuit is a set of edges that is "
        "enough for the digit with the carry.",
    ),
    Chapter("hardest", "What happens when a carry runs through every column?", _hardest),
    Chapter(
        "account",
        "Which algorithm is it, and what does the paper say?",
        _account,
        "A model may chain carries through the digits that it wrote, or look ahead at all operands. One wrong digit "
        "before the query separates the two.",
    ),
    Chapter("training", "How did it emerge during training?", _training),
    Chapter(
        "beside",
        "What do other adders do?",
        _beside,
        "The same questions to a twin whose numbers were set by hand, where there is one, and to the adder of another "
        "paper.",
    ),
    Chapter("parameters", "Every free number", _numbers),
    Chapter("more", "Where to go next", _again),
)
