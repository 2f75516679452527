"""The chapters of a story, in the order in which one comes to understand a model.

Sentences and figures come from probes, so a page says what is true of the model it is about.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import torch
from markupsafe import Markup

import models
from interp.causal.circuits import smallest_circuit
from interp.causal.patching import activation_patching
from interp.compare.compare import compare
from interp.compare.compare_models import compare_models
from interp.core.loading import load
from interp.core.probe import find_probe, group
from interp.core.results import Provenance
from interp.core.stats import clopper_pearson
from interp.core.table_result import Measure, TableResult
from interp.probes.circle_fit import circle_fit
from interp.probes.learning_curves import learning_curves
from interp.probes.training_dynamics import training_dynamics
from interp.proofs import decision_curves
from interp.site.chapter_words import about_carry, about_columns, about_others, about_switches
from interp.site.explorer import static_view
from interp.site.pages import figure_data
from interp.site.pages.items import commands, folded, paragraph, table
from interp.site.probe_answers import accuracy, answered, parameter_values
from interp.site.story import ADDED, Chapter, Story
from models.errors import UserError
from models.evaluation import margins, predict, teacher_forcing
from models.tasks import LIMIT, problem_pairs, variable_pairs
from models.tasks.named.addition import adds_pairs_below
from models.zoo import entry_file, read_entry

HARDEST = "9999999999+1"  # the longest carry chain that there is
ASKED = 5, 7  # the decision drawn is that of this answer digit, after this token
LEAD = "lead of the right digit (logits)"
OTHER = "adder-456"  # the model that others are compared with
#: One problem in so many is asked which algorithm it follows: a plausible wrong digit needs a column that adds up to
#: nine, which one problem in ten of a two-digit task has.
RARE = 25


def _asked(name: str, story: Story) -> list[Markup]:
    """A registered probe's figure; the whole sentence and the control are folded."""
    probe = find_probe(name)
    if probe.why_not(story.model):
        return []
    found, words = answered(probe, story, n=story.n, seed=story.seed)
    return _drawn(found, Markup("").join(words))


def _drawn(found: Any, words: Markup | None = None) -> list[Markup]:
    """A result's figure, with its sentence or other ``words`` folded."""
    return [figure_data(found.figure()), folded("In words", words or paragraph(found.sentence()))]


def certificate(story: Story) -> list[Markup]:
    """What is proved of all inputs, and the commands that prove it."""
    found = story.certificate
    if found is None:
        return []
    text, command = story.proved, story.command("interp certify")
    arithmetic = getattr(found.evidence, "arithmetic", "float32")  # a count has none
    again = command if arithmetic == "float32" else f"{command} --arithmetic {arithmetic}"
    if story.entry is None:
        return [paragraph(text), commands([again]), *_figure_of(found)]
    kind = "proof" if found.status == "certified" else "evidence"
    text += (
        f" The {kind} is stored next to the weights; the first command checks it again without trusting it, and the "
        "second makes it from scratch."
    )
    return [paragraph(text), commands([f"{command} --check", again]), figure_data(found.figure())]


def _figure_of(found: Any) -> list[Markup]:
    """The figure of a verdict; of a search, which has none, nothing."""
    with contextlib.suppress(UserError):
        return [figure_data(found.figure())]
    return []


def shapes(story: Story) -> list[Markup]:
    if story.entry is None or "shapes" not in story.entry["score"]:
        return []
    found = shape_scores(story.name)
    return [figure_data(found.figure()), table(found.to_dataframe())]


def _steps(story: Story) -> list[Markup]:
    return [static_view([story.model, *([] if story.twin is None else [story.twin])], with_assets=False)]


def _decision(story: Story) -> list[Markup]:
    """The arc of the digits' embeddings, and which digit leads at every value of the number that attention writes."""
    items = []
    if story.small:
        items += _drawn(circle_fit(story.model))
    with contextlib.suppress(UserError):  # if attention depends on digits, it does not write one number
        curves = decision_curves(story.model, *ASKED)
        about = "Which digit leads depends on the number alone. Thick lines are what inputs reach."
        items += [paragraph(about), figure_data(curves.figure())]
    return items


def _waves(story: Story) -> list[Markup]:
    """The frequencies of a modular model's embeddings, how accuracy depends on them, and the program that adds them."""
    if group(story.model, story.model.task):
        return []
    return [*_asked("fourier_spectrum", story), *_asked("group_program", story)]


@torch.no_grad()
def _hardest(story: Story) -> list[Markup]:
    """The answer to the problem with the longest carry chain, digit by digit."""
    task = story.model.task
    if adds_pairs_below(task) != LIMIT:
        return []
    problem = task.as_problems([HARDEST])
    targets = task.targets(problem)
    written = predict(story.model, problem, method="greedy", task=task)
    with teacher_forcing(story.model, task) as logits_of:
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


def _carry(story: Story) -> list[Markup]:
    """By how a carry arises: in one layer the edges that are enough for it, in more the streams that have it. Where
    nothing goes from column to column, the streams that have the difference of two problems."""
    task, n = story.model.task, min(story.n, 256)
    if "generate" not in story.variables:  # of the columns of two numbers
        names = (f"{story.signal}_in", "order", *story.variables)
        name = next((name for name in names if name in story.variables and name not in "sy"), "")
        if not name or story.variables[name].ndim != 2:
            return []
        column = story.variables[name].shape[1] - 1
        try:
            pairs = variable_pairs(task, name, column=column, n=n, seed=story.seed)
        except UserError:  # there are fewer
            pairs = variable_pairs(task, name, column=column, n=None, seed=story.seed)
        return _drawn(activation_patching(story.model, pairs, seed=story.seed))
    column = min(4, story.variables[f"{story.signal}_in"].shape[1] // 2)
    items = []
    for kind in (f"made {story.signal}", f"passed {story.signal}") if column > 1 else (f"made {story.signal}",):
        pairs = problem_pairs(task, kind, column=column, n=n, seed=story.seed, side="mixed")
        if story.model.cfg.n_layers == 1:
            found = smallest_circuit(story.model, pairs, groups="roles", seed=story.seed)
        else:
            found = activation_patching(story.model, pairs, seed=story.seed)
        items += _drawn(found)
    return items


def _parts(story: Story) -> list[Markup]:
    return [] if story.small else _asked("component_ablation", story)


def _account(story: Story) -> list[Markup]:
    """The algorithm that the model follows under intervention."""
    with contextlib.suppress(UserError):  # a task that does not define its domain
        story = replace(story, n=min(story.n, story.model.task.domain.size // RARE))
    return _asked("which_algorithm", story)


def _training(story: Story) -> list[Markup]:
    """The learning curves, if they are stored, and the commands that made the model."""
    if story.own:
        with contextlib.suppress(UserError):  # no run folder, or one without curves
            return [figure_data(learning_curves(story.name).figure())]
    if story.entry is None or "published" in story.entry["training"]:
        return []
    made, items = story.entry["training"], []
    if {"curves.safetensors", "metrics.jsonl"} & set(story.entry["sha256"]):
        items.append(figure_data(learning_curves(story.name).figure()))
    else:
        items.append(paragraph("No learning curves are stored with this entry. Its card has every seed's result."))
    if made.get("repeats"):
        again = models.zoo.repeated_seeds(made)
        items.append(
            paragraph(f"On a build that rounds differently, {again} of these seeds answer the whole test set.")
        )
    return [*items, paragraph("Made by"), commands(made["commands"])]


def _dynamics(story: Story) -> list[Markup]:
    if story.entry is None and not story.own:
        return []
    with contextlib.suppress(UserError):  # an entry or a file without snapshots
        return _drawn(training_dynamics(story.name, n=min(story.n, 256), n_per_length=50))
    return []


def _beside(story: Story) -> list[Markup]:
    """The model compared with its twin that was set by hand and with another paper's adder."""
    items, others = [], []
    if story.twin is not None:
        others.append(story.twin)
        pair = compare(story.model, story.twin, seed=story.seed)
        items += _drawn(pair)
    comparable = not story.own or adds_pairs_below(story.model.task) == LIMIT
    if OTHER in models.zoo_names() and story.name != OTHER and comparable:
        others.append(models.load(OTHER))
    if not others:
        return items
    found = compare_models([story.model, *others], n=min(story.n, 300), seed=story.seed)
    items += _drawn(found)
    return [*items, table(found.texts(), "Answers with intervals and controls")]


def _again(story: Story) -> list[Markup]:
    lines = {
        story.command("interp ask"): "what else can be asked of it",
        story.command("interp explore"): "the explorer on a page of its own",
        story.command("interp certify"): "what can be said of every input",
    }
    if not story.own:
        lines["make docs"] = "every model, result and notebook, as a site; in a checkout"
    width = max(map(len, lines))
    refused = [paragraph(f"{question} This was refused: {why}") for question, why in story.refused.items()]
    return [commands([f"{line:<{width}}   # {does}" for line, does in lines.items()]), *refused]


CHAPTERS: Sequence[Chapter] = (
    Chapter(
        "right",
        "Is it right, on every input?",
        lambda story: [*certificate(story), *accuracy(story)],
        "A test set says how often a model is right on problems like those in it. A certificate is a proof about all "
        "problems; anyone can check it again.",
    ),
    Chapter("shapes", "How far does it generalise?", shapes),
    Chapter(
        "steps",
        "Step through an answer",
        _steps,
        "A single problem proves little; use this view to build intuition. Ablate a head or a neuron and see which "
        "digits change.",
    ),
    Chapter("columns", "Where does each answer token look?", partial(_asked, "attention_by_role"), about_columns),
    Chapter("parts", "Which parts does it need?", _parts),
    Chapter(
        "number",
        "What does attention write?",
        partial(_asked, "attention_readout"),
        "If everything that attention writes lies along one direction, and the own column counts ten times, then it "
        "writes one number: the decimal number that two columns spell. The carry can be read off next to the digit "
        "that was written before.",
    ),
    Chapter(
        "switches",
        lambda story: f"Which neurons detect the {story.signal or 'answer'}?",
        partial(_asked, "carry_units"),
        about_switches,
    ),
    Chapter(
        "digit",
        "How does a number become a digit?",
        _decision,
        "Where the digits' embeddings (rows 0 to 9 of the table W_E) lie on an arc, in order, an angle is a digit.",
    ),
    Chapter(
        "waves",
        "Does it add by waves?",
        _waves,
        "A number can be a point on circles, one for each frequency. A clock adds the angles of two numbers; a pizza "
        "doubles the angle of their mean. Waves in the embeddings count only where the answers need them.",
    ),
    Chapter("carry", lambda story: f"Which way does a {story.signal or 'difference'} come?", _carry, about_carry),
    Chapter("hardest", "What happens when a carry runs through every column?", _hardest),
    Chapter(
        "account",
        "Which algorithm is it?",
        _account,
        lambda story: (
            f"A model may chain {'borrows' if story.signal == 'borrow' else 'carries'} through the digits that it "
            "wrote, or look ahead at all operands. One wrong digit before the query separates the two."
        ),
    ),
    Chapter("training", "How was it found?", _training),
    Chapter("dynamics", "How did it emerge during training?", _dynamics),
    Chapter("beside", "What do other adders do?", _beside, about_others),
    Chapter("parameters", "Every free number", parameter_values),
    Chapter("more", "Where to go next", _again),
)


def chapters() -> list[Chapter]:
    """All chapters in order, with those that other packages add."""
    load("chapters")
    return [each for chapter in CHAPTERS for each in (chapter, *ADDED.get(chapter.anchor, ()))]


def shape_scores(entry: str) -> TableResult:
    """The stored scores of a zoo entry by seed and shape; the first shape is the longest of the training set.

    The numbers are those of the card: :mod:`studies.zoo.reports` scored every seed on the same problems of
    each shape, which is (operands, digits), the digits of both factors, or a number of bits.

    Raises:
        UserError: no such entry, or one whose task has a single shape.
    """
    config = read_entry(entry)
    score, chosen = config["score"], config["training"]["seed"]
    if "shapes" not in score:
        raise UserError(f"{entry} has no scores by shape: its task has one.")
    n = {tuple(row["shape"]): row["n"] for row in score["shapes"]}
    seeds = json.loads(entry_file(entry, "seeds.json"))
    rows = [
        (row["seed"], " x ".join(map(str, shape)), n[tuple(shape)], correct, correct / n[tuple(shape)])
        for row in seeds
        for shape, correct in row["shapes"]
    ]
    frame = pd.DataFrame(rows, columns=["seed", "shape", "n", "correct", "accuracy"])
    ends = [clopper_pearson(*row) for row in frame[["correct", "n"]].itertuples(index=False)]
    frame[["accuracy_low", "accuracy_high"]] = ends
    source = f"problems a shape, teacher forced, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    provenance = Provenance(score["n"], score["seed"], source)
    found = TableResult("", frame, provenance, ("seed", "shape"), (Measure("accuracy", "share", title="exact match"),))
    own = frame[frame["seed"] == chosen]
    worst = found.cell("accuracy", seed=chosen, shape=own.loc[own["accuracy"].idxmin(), "shape"])
    return found.saying(f"{config['model']}: the stored seed, {chosen}, is right in at least {worst} of each shape.")
