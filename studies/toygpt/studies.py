"""ToyGPT's tables and figures: ``python -m studies reproduce toygpt:table-positions`` and its neighbours.

The tables and Figures 1 and 2 share runs: one folder per seed, trained with a constant learning rate, so that the run
to 5,000 iterations passes through the paper's 1,000. All seeds go to 1,000, the first :data:`LONG_SEEDS` on to 5,000.
If time runs out, a page shows what there is, and says for how many seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import pandas as pd
import torch

from interp.core.sections import Section
from interp.probes.learning_curves import LearningCurves
from models.evaluation import predict, score
from models.files.checkpoint import read_json, write_json_atomic
from models.training.named_recipes import get_recipe
from models.transformer.hooked import HookedModel
from studies.claims.read import stated
from studies.runs.study import Made, Settings, shows, study
from studies.runs.training_runs import TrainingRun, train_in_time
from studies.toygpt.seeds import BUDGET, budget_table, last_step, orderings, orderings_text, seed_curves

SEEDS, LONG_SEEDS = 5, 2
EARLY, LATE = (250, 500, 750, BUDGET), (1_500, 2_000, 3_000, 4_000, 5_000)
BEST = "toygpt-learned-pre"
#: Sorted as in the paper, the best first.
POSITIONS = {"toygpt-learned-pre": "learned", "toygpt-rotary-pre": "rotary", "toygpt-none-pre": "no positions"}
PLACEMENTS = {"toygpt-learned-pre": "pre-LN", "toygpt-learned-post": "post-LN", "toygpt-learned-none": "no LN"}
#: Their names in the headlines.
IN_THE_PAPER = {
    "toygpt-learned-pre": "Learned positions",
    "toygpt-rotary-pre": "Rotary positions",
    "toygpt-none-pre": "No positions",
    "toygpt-learned-post": "Post-LN",
    "toygpt-learned-none": "No LayerNorm",
}
DIGITS = ("units", "tens", "hundreds")
WHAT = {"positions": ("Positions, pre-LN", POSITIONS), "layernorm": ("LayerNorm, learned positions", PLACEMENTS)}


@cache
def claims() -> dict[str, float]:
    """The paper's final accuracies on test pairs, by model."""
    return {model: stated("toygpt", f"{label}: test accuracy.")[0] for model, label in IN_THE_PAPER.items()}


def runs_of(settings: Settings, names: Sequence[str]) -> list[TrainingRun]:
    """The runs of these models, seed by seed, in the order of training."""
    recipe = get_recipe("toygpt").replace(steps=LATE[-1], snapshots=2)
    seeds = range(SEEDS if settings.seeds is None else settings.seeds)
    root = settings.out / "toygpt" / "runs"
    return [TrainingRun(name, recipe, root / name / f"seed-{seed}", seed) for seed in seeds for name in names]


def train_what_is_missing(settings: Settings, runs: Sequence[TrainingRun]) -> bool:
    """Train what is missing; False if time ran out before all was done."""
    device = "cpu" if settings.device == "auto" else settings.device  # launches would cost a GPU more than it saves
    plan = [(run, EARLY) for run in runs] + [(run, LATE) for run in runs if run.seed < LONG_SEEDS]
    return train_in_time(plan, settings, device)


def measured(run: TrainingRun) -> list[dict[str, Any]]:
    """One row for every stop that the run has passed; kept in its folder, as each costs some forward passes."""
    path = run.folder / "measured.json"
    rows: dict[str, dict[str, Any]] = read_json(path) if path.exists() else {}
    for step in (*EARLY, *LATE):
        if str(step) in rows or not run.has(step):
            continue
        model = run.model_at(step)
        row: dict[str, Any] = {"model": run.model, "seed": run.seed, "step": step}
        if step in (BUDGET, LATE[-1]):
            row |= errors(model)
        else:
            row |= {"test": score(model).correct, "train": None}
        rows[str(step)] = row
        write_json_atomic(path, rows)
    return [rows[step] for step in sorted(rows, key=int)]


def errors(model: HookedModel) -> dict[str, Any]:
    """Right sums held out (``test``) and not (``train``), and ``errors`` among all 10,000: right ``digits``, wrong sums
    by their ``first_wrong`` digit, and wrong tens digits by ``kinds``.

    Each digit is judged given the right ones before it. A tens digit of the sum without its carry is "missed", one of
    the sum with a carry that there is not is "spurious". Cost: 10,000 forward passes of six tokens.
    """
    task, problems = model.task, model.task.domain.every()
    expected, predicted = task.targets(problems), predict(model, problems, task=task)
    right, carry = predicted == expected, task.variables(problems)["carry_out"][:, 0] == 1
    exact, key = right.all(1), problems[:, 0] * 100 + problems[:, 1]
    first, held_out = (~right).long().argmax(1)[~exact], task.held_out.problems
    is_test = torch.isin(key, held_out[:, 0] * 100 + held_out[:, 1])
    off = (predicted - expected)[:, 1] % 10
    kinds = {"missed": carry & (off == 9), "spurious": ~carry & (off == 1)}
    kinds["other"] = ~right[:, 1] & ~kinds["missed"] & ~kinds["spurious"]
    counts = {
        "digits": {digit: int(right[:, i].sum()) for i, digit in enumerate(DIGITS)},
        "first_wrong": {digit: int((first == i).sum()) for i, digit in enumerate(DIGITS)},
        "kinds": {kind: int(rows.sum()) for kind, rows in kinds.items()},
    }
    return {"test": int(exact[is_test].sum()), "train": int(exact[~is_test].sum()), "errors": counts}


def comparison(question: str, settings: Settings) -> dict[str, Any]:
    """Train what is missing for "positions" or "layernorm". Returns the data of the comparison's page, from which it
    can be made again without training.

    Raises:
        UserError: time ran out before one seed of every variant was trained.
    """
    what, variants = WHAT[question]
    runs = runs_of(settings, list(variants))
    train_what_is_missing(settings, runs)
    rows: list[dict[str, Any]] = []
    losses: dict[str, dict[str, Any]] = {}
    for run in runs:
        if run.folder.exists():
            rows += measured(run)
            steps, values = zip(*run.losses(), strict=True)
            curve = {"step": list(steps), "loss": [round(x, 4) for x in values]}
            losses.setdefault(run.model, {})[str(run.seed)] = curve
    data = {"what": what, "variants": dict(variants), "rows": rows, "losses": losses}
    comparison_of(data)
    return data


def comparison_of(data: dict[str, Any]) -> LearningCurves:
    """The curves of all variants that :func:`comparison` stored."""
    losses = [
        {"model": model, "seed": int(seed), "step": step, "loss": loss}
        for model, seeds in data["losses"].items()
        for seed, curve in seeds.items()
        for step, loss in zip(curve["step"], curve["loss"], strict=True)
    ]
    return seed_curves(data["variants"], data["rows"], losses)


def _orderings(result: LearningCurves) -> pd.DataFrame:
    table = orderings(result)
    shown = table[table.iterations.isin([BUDGET, 2_000, 3_000, LATE[-1]])].copy()
    infinite = shown.low.abs() == float("inf")
    for column in ("mean difference", "low", "high"):
        shown[column] = [f"{100 * value:+.1f}" for value in shown[column]]
    shown.loc[infinite, ["low", "high"]] = "–"
    return shown.rename(columns={"mean difference": "mean difference, points", "low": "95% low", "high": "95% high"})


def _kinds(rows: Sequence[dict[str, Any]], variants: dict[str, str]) -> pd.DataFrame:
    """What is wrong in every seed after the paper's budget: digits and kinds of tens errors, among all 10,000 sums."""
    found = []
    for row in rows:
        if row["step"] == BUDGET and row["model"] in variants:
            counts = row["errors"]
            wrong = {f"{digit} wrong first": n for digit, n in counts["first_wrong"].items()}
            kinds = {f"tens: {kind}": n for kind, n in counts["kinds"].items()}
            total = 10_000 - row["test"] - row["train"]
            found.append({"variant": variants[row["model"]], "seed": row["seed"], "sums wrong": total} | wrong | kinds)
    return pd.DataFrame(found)


def _orderings_section(result: LearningCurves, what: str) -> Section:
    text = (
        f"{orderings_text(result, what)}\n\nThe same seed draws the same problems for every variant, so "
        f"differences are taken within seeds. The first {LONG_SEEDS} seeds went on beyond {BUDGET:,} iterations as far "
        "as shown."
    )
    return Section("The paper's orderings at more iterations", text, (_orderings(result),), (result.figure(),))


def _loss_section(result: LearningCurves) -> Section:
    return Section(
        "Training loss", "Over more iterations and seeds than the paper's.", (), (result.figure(what="loss"),)
    )


@shows("toygpt:table-positions", "toygpt:table-layernorm")
def show_table(data: Any) -> list[Section]:
    result = comparison_of(data)
    sections = [
        Section(
            f"{data['what']}, after {BUDGET:,} iterations",
            "Whole sums right under greedy decoding, in percent: 500 held-out pairs and the 9,500 training pairs, all "
            "of them. Mean over seeds with Student's t interval, extremes, and every seed. The paper has one run each.",
            (budget_table(result, claims()),),
            (result.figure("seeds", step=BUDGET, printed=claims()),),
        ),
        _orderings_section(result, data["what"]),
        _loss_section(result),
        Section(
            "Which digit goes wrong",
            "Of all 10,000 sums, by seed: the first wrong digit, and of what kind wrong tens digits are (missed carry, "
            "spurious carry, other), each given the right units digit.",
            (_kinds(data["rows"], data["variants"]),),
        ),
    ]
    if (last := last_step(result)) > BUDGET:
        sections.insert(1, Section(f"After {last:,} iterations", "", (budget_table(result, claims(), last),)))
    return sections


@shows("toygpt:fig1", "toygpt:fig2")
def show_curves(data: Any) -> list[Section]:
    result = comparison_of(data)
    return [_loss_section(result), _orderings_section(result, data["what"])]


def _comparison(question: str, title: str, settings: Settings) -> Made:
    data = comparison(question, settings)
    return Made(data, f"ToyGPT: {title}{data['what']}")


for _target, _title, _question, _what in (
    ("table-positions", "Learned, rotary and no positions: accuracies over seeds and budgets", "positions", ""),
    ("table-layernorm", "Pre-, post- and no LayerNorm: accuracies over seeds and budgets", "layernorm", ""),
    ("fig1", "Training curves for three kinds of positions", "positions", "training curves. "),
    ("fig2", "Training curves for three placements of LayerNorm", "layernorm", "training curves. "),
):
    _stored = "" if _target.startswith("table") else f"toygpt-table-{_question}.json"
    study(f"toygpt:{_target}", _title, stored=_stored)(partial(_comparison, _question, _what))
