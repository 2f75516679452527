"""The card of a zoo entry: what a reader wants to know first, rendered from the entry's data by ``card.md.j2``.

Nobody writes or edits a card. Each fact comes from the entry's config (score, training, certificate, notes) or from its
``seeds.json``; an entry with a score of an unknown form has a short card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from models.files.checkpoint import parse_weights
from models.number_format import shown
from models.problem_score import Score
from models.rates import Rate
from models.registry import build, recipe_of
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition
from models.training.recipes import recipe_name, starts_of
from models.training.run_folder import differences
from models.training.stacked_objective import ParameterLayout
from models.zoo.files import CARD, STORED_AS

_MADE = ("seed", "step", "seeds_tried", "seconds", "commands", "recipe", "torch")  # what publishing records
#: Keys of a score that tell its kind, the most telling first.
_KINDS = ("windows", "all", "shapes", "by_chain_length")
_FILES = {
    "certificate.json.gz": "the proof",
    "curves.safetensors": "the learning curves of all seeds",
    "metrics.jsonl": "every evaluation",
    "seeds.json": "the results of all seeds",
    "snapshots.safetensors": "log-spaced over training",
}
_OWN_LINE = ("* ", "|", "#", "    ")  # how a line begins that is not joined to the one before
_ENVIRONMENT = Environment(loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True)


def render_card(config: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    """An entry's card as Markdown, from its config and files (the weights and, where there is one, ``seeds.json``).

    Raises:
        UserError: a model that is not registered.
    """
    score, training = config["score"], config["training"]
    published = training.get("published")
    kind = next((kind for kind in _KINDS if kind in score), None)
    if not published and not all(key in training for key in _MADE):
        kind = None
    facts = _of_parameters(config, files) | _of_seeds(config, kind or ("by_chain_length" if published else None), files)
    stored = {*config["sha256"], *files} - {CARD, config["weights"]}
    words = _FILES | ({"metrics.jsonl": "every evaluation of this seed"} if "curves.safetensors" in stored else {})
    certificate = config.get("certificate")
    text = _ENVIRONMENT.get_template("card.md.j2").render(
        facts,
        name=config["model"],
        score=score,
        training=training,
        published=published,
        kind=kind,
        start=training.get("start"),
        tried=training.get("seeds_tried"),
        certificate=certificate if isinstance(certificate, Mapping) else None,
        made=made_by(config["model"], training) if kind and not published else "",
        weights=config["weights"],
        listed=sorted(stored),
        words=words,
        shown=shown,
        percent=_percent,
        span=lambda n, correct: _span(Rate(n, correct)),
    )
    parts = [_joined(text)]
    for heading, paragraphs in config.get("notes", {}).items():
        parts += [f"## {heading}", *paragraphs]
    return "\n\n".join(parts) + "\n"


def _joined(text: str) -> str:
    """The text with its lines joined, but for points, rows, headings and code; a list of points has no empty lines."""
    lines: list[str] = []
    for line in text.split("\n"):
        line = line if line.startswith("    ") else line.strip()
        if line.startswith("* ") and lines[-1:] == [""] and lines[-2:-1] and lines[-2].startswith("* "):
            lines.pop()
        if not line:
            lines += [""] * (lines[-1:] != [""])
        elif line.startswith(_OWN_LINE) or not lines[-1:] or not lines[-1] or lines[-1].startswith(_OWN_LINE[1:]):
            lines.append(line)
        else:
            lines[-1] += " " + line
    return "\n".join(lines).strip("\n")


def made_by(name: str, training: Mapping[str, Any]) -> str:
    """How a model was made: the commands, and where their recipe differs from the registered one.

    Args:
        training: ``training`` of the entry's config, with ``commands`` and ``recipe``.
    """
    registered = recipe_of(name)
    changes = [
        f"* `{path}`: {_shown(now)} (registered: {_shown(then)})"
        for path, now, then in differences(training["recipe"], registered.to_dict())
    ]
    made = "Made by\n\n" + "\n".join(f"    {command}" for command in training["commands"])
    if not changes:
        return made
    known = f", {recipe_name(registered)}," if recipe_name(registered) else ""
    return f"{made}\n\nwith a recipe that differs from the registered one{known} in\n\n" + "\n".join(changes)


def _of_parameters(config: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    """How many parameters there are, how they are stored, and where they began."""
    model = build(config["model"])
    tensors, metadata = parse_weights(files[config["weights"]], config["weights"])
    layout = ParameterLayout(model)
    drawn, names = starts_of(config["training"].get("recipe", {}))
    return {
        "count": sum(tensor.numel() for tensor in tensors.values()),
        "ternary": getattr(model.weight_map, "is_ternary", False),
        "stored_as": metadata.get(STORED_AS),
        "constants": model.weight_map.constants,
        "task": model.task,
        "drawn": drawn,
        "n_placed": len({i for name in names for i in range(layout.n)[layout.places(name)]}),
        "placed_by_map": model.weight_map.placed,
    }


def _of_seeds(config: Mapping[str, Any], kind: str | None, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The rows of the tables that a kind of score has."""
    score, seeds = config["score"], json.loads(files.get("seeds.json", b"[]"))
    facts: dict[str, Any] = {"seeds": seeds}
    if kind == "by_chain_length":
        result = Score.from_dict(score)
        facts |= {"result": result, "chain_rows": list(map(_chain_row, result.to_dataframe().itertuples()))}
    elif kind == "shapes":
        several = isinstance(build(config["model"]).task, MultiOperandAddition)
        sizes = {2: "digits of both factors", 1: "bits"}[len(score["shapes"][0]["shape"])]
        facts |= {"size": "operands, digits" if several else sizes, "seed_names": [f"seed {x['seed']}" for x in seeds]}
        facts["shape_rows"] = [
            [", ".join(map(str, one["shape"])), *(_share(Rate(one["n"], seed["shapes"][i][1])) for seed in seeds)]
            for i, one in enumerate(score["shapes"])
        ]
    elif kind == "all":
        facts["pair_rows"] = [
            [
                f"{seed['seed']}{' (stored)' if seed['chosen'] else ''}",
                f"{seed['train']['correct']:,}",
                f"{seed['test']['correct']} ({_span(Rate(**seed['test']))})",
                *(f"{count:,}" for count in seed["digits"]),
            ]
            for seed in seeds
        ]
    elif kind == "windows":
        facts["text_rows"] = [
            [seed["seed"], f"{seed['best_loss']:.4f}", f"{seed['best_step']:,}", f"{seed['last_loss']:.4f}"]
            for seed in seeds
        ]
    return facts


def _chain_row(row: Any) -> list[Any]:
    return [row.chain_length, f"{row.n:,}", f"{row.correct:,}", f"{row.low:.4f}-{row.high:.4f}"]


# ---- numbers in words


def _percent(n: int, correct: int) -> str:
    rate = Rate(n, correct)
    return f"{100 * rate.accuracy:.1f}%, 95% interval {_span(rate)}"


def _span(rate: Rate) -> str:
    low, high = rate.interval
    return f"{100 * low:.1f}-{100 * high:.1f}%"


def _share(rate: Rate) -> str:
    low, high = rate.interval
    return f"{rate.accuracy:.3f} ({low:.3f}-{high:.3f})"


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).lower()
