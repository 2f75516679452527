"""Zoo entries of models on sequences of many lengths.

What counts there is length generalisation, which is a lottery over seeds. So every seed is scored on the same shapes,
from the training bounds upwards, and the card prints them all; the seed that is stored is chosen on problems of the
shapes beyond the training set's that are drawn apart from those it is scored on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.evaluation import Rate
from models.fast_forward import exact_match
from models.registry import build
from models.tasks.multi_addition import MultiOperandAddition
from models.tasks.sequences import SequenceTask
from models.training.objective import ParameterLayout
from models.training.provenance import finished_seeds, how_made, made_by
from models.transformer import ArithmeticTransformer
from models.zoo import ZOO, save_entry

SELECTION_SIZE, SELECTION_SEED = 100, 77
SCORE_SIZE, SCORE_SEED = 1_000, 2025


def probe_shapes(model: ArithmeticTransformer) -> list[tuple[int, ...]]:
    """Shapes from the training bounds to what the position tables reach: both sizes growing, then each alone."""
    task = model.task
    assert isinstance(task, SequenceTask)
    trained = task.shape
    grown = [tuple(size + more for size in trained) for more in (0, 1, 2, 3, 4, 6, 8, 10, 15, 20, 40, 60, 80)]
    if len(trained) == 2:
        grown += [(trained[0] * 2, trained[1]), (trained[0], trained[1] * 2)]
    return [shape for shape in grown if _reachable(model, shape)]


def _reachable(model: ArithmeticTransformer, shape: tuple[int, ...]) -> bool:
    """Whether the tables have the ids, and no more than 30 of anything but bits is asked."""
    task = model.task
    assert isinstance(task, SequenceTask)
    if len(shape) == 2 and max(shape) > 30:
        return False
    limits = model.position_limits
    return not limits or all(id <= limit for id, limit in zip(task.at(*shape).highest_ids(), limits, strict=True))


def cell_rates(
    model: ArithmeticTransformer, shapes: list[tuple[int, ...]], n: int, seed: int
) -> dict[tuple[int, ...], Rate]:
    """Exact match of whole responses, teacher-forced, on ``n`` problems of each shape, with ids starting at 1."""
    task, rates = model.task, {}
    assert isinstance(task, SequenceTask)
    for shape in shapes:
        other = task.at(*shape)
        problems = other.sample(n, torch.Generator().manual_seed(seed))
        rates[shape] = Rate(n, int(exact_match(model, other, problems).sum()))
    return rates


def publish_sequences(
    folders: list[Path], configs: list[dict[str, Any]], out: Path | None, overwrite: bool
) -> tuple[Path, Rate]:
    """Write the entry of the model that ``folders`` trained; the arguments are checked by ``publish``.

    Returns:
        the entry's folder and the chosen seed's score on the training set's longest shape.

    Raises:
        UserError: unfinished runs, seeds tried twice.
    """
    name = configs[0]["model"]
    model = build(name)
    layout = ParameterLayout(model)
    shapes = probe_shapes(model)
    beyond = shapes[1:] or shapes
    rows = []
    seeds, seconds, metrics = finished_seeds(folders)
    for entry, best in seeds:
        theta = best.half().float()  # what is stored is what is scored
        layout.load_into(model, theta)
        selection = cell_rates(model, beyond if len(seeds) > 1 else [], SELECTION_SIZE, SELECTION_SEED)
        scores = cell_rates(model, shapes, SCORE_SIZE, SCORE_SEED)
        rows.append((sum(rate.correct for rate in selection.values()), entry, theta, scores))
    _, entry, theta, scores = max(rows, key=lambda row: row[0])
    layout.load_into(model, theta)
    task = model.task
    assert isinstance(task, SequenceTask)
    perfect = Rate(len(rows), sum(next(iter(r.values())).correct == SCORE_SIZE for *_, r in rows))
    training = {
        "seed": entry["seed"],
        "step": entry["best_step"],
        "seeds_tried": perfect.n,
        "seeds_grokked": perfect.correct,
        "grok_interval_95": list(perfect.interval),
    } | how_made(configs, seconds)
    first = next(iter(scores.values()))
    score = {
        "n": first.n,
        "correct": first.correct,
        "problems": task.shape_text,
        "method": "teacher_forced",
        "rung": "sampled",
        "seed": SCORE_SEED,
        "shapes": [{"shape": list(shape), "n": rate.n, "correct": rate.correct} for shape, rate in scores.items()],
    }
    public = [
        {key: e[key] for key in ("seed", "status", "best_exact", "best_step")}
        | {"chosen": e["seed"] == entry["seed"], "shapes": [[list(s), r.correct] for s, r in table.items()]}
        for _, e, _, table in rows
    ]
    files = {
        "seeds.json": json.dumps(public, indent=1).encode(),
        "metrics.jsonl": metrics,
        "card.md": _card(model, training, rows).encode(),
    }
    folder = save_entry(out or ZOO / name, model, training, score, files, overwrite, half=True)
    return folder, first


def _card(model: ArithmeticTransformer, training: dict[str, Any], rows: list[tuple[int, dict, Tensor, dict]]) -> str:
    task = model.task
    assert isinstance(task, SequenceTask)
    header = {2: "digits of both factors", 1: "bits"}[len(task.shape)]
    if isinstance(task, MultiOperandAddition):
        header = "operands, digits"
    seeds = " | ".join(f"seed {entry['seed']}" for _, entry, _, _ in rows)
    lines = []
    for shape in rows[0][3]:
        cells = []
        for *_, scores in rows:
            low, high = scores[shape].interval
            cells.append(f"{scores[shape].accuracy:.3f} ({low:.3f}-{high:.3f})")
        lines.append(f"| {', '.join(map(str, shape))} | " + " | ".join(cells) + " |")
    n_parameters = sum(p.numel() for p in model.parameters())
    table = "\n".join(lines)
    return f"""# {model.name_or_path}

{n_parameters:,} free parameters, stored in float16; trained by this project on {task.name}.

Share of whole responses that are right, with 95% intervals: {SCORE_SIZE:,} problems a shape (seed {SCORE_SEED}),
teacher forced (for a whole response the same as greedy decoding), position ids starting at 1. Rung: sampled. The first
line is the longest shape of the training set.

| {header} | {seeds} |
|---|{"---|" * len(rows)}
{table}

* **Stored:** seed {training["seed"]}, parameters after {training["step"]:,} steps; of {training["seeds_tried"]} chosen
  on {SELECTION_SIZE} other problems of each further shape (seed {SELECTION_SEED}).
* **Time:** {training["seconds"] / 60:.0f} minutes for all seeds on one thread of a shared machine, bfloat16 products,
  torch {training["torch"]}.

{made_by(str(model.name_or_path), training)}

Another machine or version rounds differently, and how far a seed generalises is a lottery.

Files: `model.safetensors` (free parameters), `metrics.jsonl` and `seeds.json` (all seeds), `config.json`.
"""
