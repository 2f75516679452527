"""How far sums generalise if heads see only near position ids: ``position-coupling:near-ids``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp.core.results import Provenance
from interp.core.sections import Section
from interp.figures import theme
from interp.figures.layers import curve, hover
from interp.figures.panels import SHARE, Panel, compose
from interp.papers.position_coupling.keys import draw_coupled
from interp.papers.position_coupling.studies import sources_of
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.training_runs import OutOfTime
from models.evaluation import Rate
from models.partial_forward import exact_match
from models.tasks.multi_addition import MultiOperandAddition
from models.transformer import ArithmeticTransformer

TARGET = "position-coupling:near-ids"
SQUARES = (4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 24, 30)
N = 100  # problems of each size
SEEDS = 4
TEXT = """In larger problems pairs of position ids meet that never met in training (position-coupling:repairs). The
paper's construction needs no key whose ids are more than one away from the query's. So one arm hides all other keys,
in training and after it (attn_window=1). Another keeps the four offsets of ids that the construction uses: this column
and the one before it, of this running sum and of the one before it. The first arm sees all ids. Model, recipe, steps
and problems are the same: one layer of four heads, trained on sums of two to four numbers of one to four digits.

Each seed answers {n} problems of T_A for each square, with ids from 1 on; teacher-forced. In the first place of a sum
of four numbers there is a 3 at most, and of a running sum of three numbers a 2. More numbers bring larger digits
there, and a digit that was never followed by ">" is then followed by it. Such problems are counted apart. Nothing was
chosen by these numbers: the window is the construction's, and all seeds are shown."""
_COLOURS = (theme.GREY, theme.BLUE, theme.VERMILION)


@study(TARGET, "Sums far beyond the training range, by heads that see near ids alone")
def near_ids(settings: Settings) -> Made | None:
    """Train four seeds of each arm, in the folders of ``position-coupling:window``.

    Cost: 5 minutes per seed on an idle core.
    """
    n, seeds, rows = settings.problems or N, settings.seeds or SEEDS, []
    arms = sources_of("window", replace(settings, seeds=seeds))
    for label, several in arms.items():
        for source in several:
            settings.say(f"{label}: {source}")
            try:
                model = source.model()
            except OutOfTime:
                settings.say("Not finished; the same command goes on.")
                return None
            rows += [{"arm": label, "seed": source.seed} | right_at(model, model.task, size, n) for size in SQUARES]
    return Made({"rows": rows, "n": n, "trained": arms[label][0].variant.most})


def right_at(model: ArithmeticTransformer, trained: MultiOperandAddition, size: int, n: int) -> dict[str, int]:
    """How many of ``n`` problems of a square size are right, and how many of those with ``new`` first digits."""
    task = trained.at(size, size)
    problems = draw_coupled(task, None, n, 0).problems
    most = first_digits(trained, torch.full((1, *trained.shape), 9))
    found, new = exact_match(model, task, problems), (first_digits(task, problems) > most).any(1)
    return {"size": size, "right": int(found.sum()), "new": int(new.sum()), "new_right": int((found & new).sum())}


def first_digits(
    task: MultiOperandAddition, problems: Int[Tensor, "n operand column"]
) -> Int[Tensor, "n before_last_and_last"]:
    """The first digits of the last running sum but one (which no earlier one exceeds) and of the sum."""
    ends = [at for at, role in enumerate(task.target_roles) if role.label in (">", "EOS")]
    return task.targets(problems)[:, [ends[-2] - 1, ends[-1] - 1]]  # units come first


@shows(TARGET)
def show_near_ids(data: Any) -> list[Section]:
    """The page of ``data``: ``rows`` of :func:`right_at` with ``arm`` and ``seed``, ``n``, and the ``trained`` size."""
    n, rows = data["n"], data["rows"]
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    table = []
    for size in SQUARES:
        line: dict[str, Any] = {"numbers and digits": size}
        for arm in arms:
            here = [row for row in rows if (row["arm"], row["size"]) == (arm, size)]
            line[f"{arm}: right of {n}, by seed"] = ", ".join(str(row["right"]) for row in here)
            k, of = sum(row["new_right"] for row in here), sum(row["new"] for row in here)
            known, all_known = sum(row["right"] for row in here) - k, n * len(here) - of
            line[f"{arm}: first digits as in training"] = str(Rate(all_known, known)) if all_known else "none"
            line[f"{arm}: new first digits"] = str(Rate(of, k)) if of else "none"
        table.append(line)
    layers = [layer for arm, colour in zip(arms, _COLOURS, strict=False) for layer in _curves(rows, arm, colour, n)]
    axes = {"x": {"title": "numbers in the sum, and digits of each"}, "y": SHARE | {"title": "problems answered right"}}
    source = Provenance(
        n, 0, f"problems of T_A for each size and seed; trained up to {data['trained']} x {data['trained']}"
    )
    note = "Thick lines are medians over seeds, thin ones are seeds; from 5 to 9, sums have first digits that are new"
    figure = compose([Panel(layers, **axes)], _title(rows, n, arms), source, note=note, height=480)
    return [
        Section("What was measured", TEXT.format(n=n)),
        Section("Exact match", "", [], [figure]),
        Section(
            "Counts",
            "Intervals are 95% ones over the answers of all seeds to the same problems.",
            [pd.DataFrame(table)],
        ),
    ]


def _curves(rows: Sequence[dict[str, Any]], arm: str, colour: str, n: int) -> list[Any]:
    by_seed: dict[int, list[int]] = {}
    for row in rows:
        if row["arm"] == arm:
            by_seed.setdefault(row["seed"], []).append(row["right"])

    def line(right: Sequence[int | float], who: str, name: str | None, **style: Any) -> Any:
        said = [f"{arm}, {who}: {k:g} of {n} at {size} x {size}" for k, size in zip(right, SQUARES, strict=True)]
        return curve(SQUARES, [k / n for k in right], name, colour, **style, **hover("{said}", said=said))

    thin = [line(ks, f"seed {seed}", None, width=1, opacity=0.5, showlegend=False) for seed, ks in by_seed.items()]
    middle = [median(ks) for ks in zip(*by_seed.values(), strict=True)]
    return [*thin, line(middle, f"median of {len(by_seed)} seeds", arm, width=4, symbol="circle")]


def _title(rows: Sequence[dict[str, Any]], n: int, arms: Sequence[str]) -> str:
    largest = [row for row in rows if row["size"] == SQUARES[-1]]
    at = {arm: median(row["right"] for row in largest if row["arm"] == arm) / n for arm in arms}
    each = ", ".join(f"{share:.0%} with {arm}" for arm, share in at.items())
    return f"Right at {SQUARES[-1]} x {SQUARES[-1]} (median): {each}"
