"""Which program small modular adders learn, over operation, width, depth, attention and seed:
``interp reproduce comparison:algorithms``.

Every model is run on all pairs, and :func:`interp.group_program` says which program it follows, by embeddings that no
number has. Its rule was fixed on constructed models, which are the controls here: their programs are known. The
question refuses models whose labels are shuffled, and the untrained start of every model, since they do not add.

A cell that is trained and judged is kept under OUT/comparison/algorithms/, and the same command goes on with the
others. All 325 models take some two hours on one core.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import models
from interp.causal.interchange.group_program import MIXED, NONE, PROGRAMS, GroupProgram, group_program
from interp.core.sections import Section
from interp.core.stats import proportion
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.sweeps import Arm, folder_of, train_arm
from models.checkpoint import write_json_atomic
from models.errors import UserError
from models.modular import CELLS, SWEPT
from models.registry import recipe_of
from models.training.load_run import model_of
from models.training.run_folder import RunFolder
from models.transformer import ArithmeticTransformer

TARGET, TITLE = "comparison:algorithms", "Which program modular adders learn"
SEEDS = 13
UNABLE = "not asked"  # a model that is wrong on most pairs
VERDICTS = (*PROGRAMS, MIXED, NONE, UNABLE)
PLANTED = ("clock", "pizza", "table")
CELL_WORDS = """Shares of seeds, with 95% intervals (Clopper-Pearson). Each verdict rests on 2,048 pairs of each change,
drawn with seed 0, and on intervals of their shares."""


def arms() -> list[Arm]:
    return [Arm(name, name, recipe_of(name), f"algorithms/{name}", paper="comparison") for name in CELLS]


@study(TARGET, TITLE)
def algorithms(settings: Settings) -> Made | None:
    """25 cells of 13 seeds; ``--seeds`` takes fewer of each."""
    rows, seeds = [], settings.seeds or SEEDS
    for arm in arms():
        kept = folder_of(settings, arm) / f"judged-{seeds}.json"
        if not kept.is_file():
            if not train_arm(settings, arm, seeds):
                continue  # others may be trained already
            settings.say(f"judging {arm.label}")
            write_json_atomic(kept, _judged(arm, folder_of(settings, arm)))
        rows += json.loads(kept.read_text())
    if not rows:
        return None
    planted = [_planted(program) for program in PLANTED]
    return Made({"rows": rows, "planted": planted, "sentences": [_sentence(rows, planted)]})


def _judged(arm: Arm, folder: Path) -> list[dict[str, Any]]:
    """A row for every seed's best parameters."""
    loaded = RunFolder(folder).load_checkpoint()
    assert loaded is not None  # it has just been trained
    operation, uniform, width, layers = CELLS[arm.model]
    cell = {
        "operation": operation,
        "attention": "uniform" if uniform else "learned",
        "width": width,
        "layers": layers,
    }
    rows = []
    for theta, state in zip(loaded.tensors["best_theta"], loaded.state["seeds"], strict=True):
        model, seed = model_of(arm.model, theta), state["seed"]
        start = models.build(arm.model, seed=seed)
        rows.append(cell | {"seed": seed} | _right(model) | _program(model) | {"untrained": _program(start)["verdict"]})
    return rows


def _right(model: ArithmeticTransformer) -> dict[str, int]:
    """How many of all pairs, and of the held-out ones, the model answers right."""
    task = model.task
    every = task.domain.problems(task.domain.numbered(torch.arange(task.domain.size)))
    right = {}
    for name, problems in (("", every), ("_held_out", task.test_set()[1])):
        with torch.no_grad():
            logits = model(task.encode(problems))[:, list(task.query_positions)]
        right |= {f"right{name}": int((logits.argmax(-1) == task.targets(problems)).all(1).sum())}
        right |= {f"n{name}": len(problems)}
    return right


def _program(model: ArithmeticTransformer) -> dict[str, Any]:
    """The verdict with the shares behind it; :data:`UNABLE` for a model that the question refuses."""
    try:
        found: GroupProgram = group_program(model)
    except UserError:
        return {"verdict": UNABLE}
    shares = {
        f"{program}_{change}": round(found.share(program, change).value, 4)
        for program in PROGRAMS
        for change in ("scaled", "interchanged")
        if found.share(program, change).n
    }
    return {"verdict": found.verdict, "frequencies": len(found.frequencies)} | shares


def _planted(program: str) -> dict[str, Any]:
    model = models.build(f"modular-{program}-hand-built", p=SWEPT)
    return {"program": program} | _right(model) | _program(model)


def _sentence(rows: Sequence[dict[str, Any]], planted: Sequence[dict[str, Any]]) -> str:
    trained = [row for row in rows if row["operation"] != "shuffled"]
    shuffled = [row for row in rows if row["operation"] == "shuffled"]
    perfect = [row for row in trained if row["right"] == row["n"]]
    verdicts, untrained = Counter(row["verdict"] for row in trained), [row["untrained"] for row in rows]
    told = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS)
    controls = ", ".join(f"{row['program']}: {row['verdict']}" for row in planted)
    refused = [sum(each == UNABLE for each in some) for some in ([row["verdict"] for row in shuffled], untrained)]
    return (
        f"Of {len(trained)} trained models of {_cells(trained)} cells, {len(perfect)} are right on all {SWEPT**2:,} "
        f"pairs (counted). Their programs are: {told}. Planted programs are named so ({controls}). The question "
        f"refuses {refused[0]} of {len(shuffled)} models of shuffled sums and {refused[1]} of {len(rows)} untrained "
        "ones."
    )


def _cells(rows: Sequence[dict[str, Any]]) -> str:
    """How many cells these rows are of, and of how many."""
    done = {(row["operation"], row["attention"], row["width"], row["layers"]) for row in rows}
    planned = sum(operation != "shuffled" for operation, *_ in CELLS.values())
    return f"{len(done)}" if len(done) == planned else f"{len(done)} of {planned}"


@shows(TARGET)
def show_algorithms(data: Any) -> list[Section]:
    """The verdicts of every cell, with intervals over its seeds, and those of the planted models."""
    table, by = pd.DataFrame(data["rows"]), ["operation", "attention", "width", "layers"]
    lines = []
    for values, cell in table.groupby(by, sort=False):
        line: dict[str, Any] = dict(zip(by, values, strict=True))
        line["right on all pairs"] = str(proportion((cell.right == cell.n).to_numpy()))
        line["least right"] = float((cell.right / cell.n).min())
        line |= {verdict: str(proportion((cell.verdict == verdict).to_numpy())) for verdict in VERDICTS}
        lines.append(line)
    undecided = table[table.verdict == MIXED][[*by, "seed", "right"]]
    return [
        Section("What was found", " ".join(data["sentences"])),
        Section("Cells", CELL_WORDS, (pd.DataFrame(lines),)),
        Section("Planted programs", "The rule was fixed on these.", (pd.DataFrame(data["planted"]),)),
        Section("Fourier programs that are neither", "Every such seed by name.", (undecided,)),
    ]
