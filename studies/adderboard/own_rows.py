"""This project's own small adders of ten-digit numbers as rows of the board, from what is stored of them."""

from __future__ import annotations

import json
from typing import Any

import models
from interp.proofs.stored_verdicts import CONSTRUCTED, stored_certificate
from models.registry import BY_HAND, constructed, get_spec, numbers_of
from models.tasks.named.addition import adds_pairs_below
from models.tasks.number_digits import LIMIT
from models.training.recipes import starts_of
from studies.adderboard.board_rows import NOT_STATED, OVER_THE_REALS, WITH_ROUNDING, BoardRow, distinct_numbers

OWN = "zoo"  # in place of a file
#: Most free numbers of a model that is listed.
SMALL = 1_000


def own_rows() -> list[BoardRow]:
    """One row per adder of ten-digit numbers in the zoo, trained or set by hand, with at most ``SMALL`` numbers.

    Scores and verdicts are those that are stored; constructions are scored now, which takes a second each.
    """
    stored, by_hand = set(models.zoo_names()), set(constructed())
    names = [name for name in models.names() if name in stored | by_hand and 0 < numbers_of(name)[0] <= SMALL]
    return [row for name in names if (row := _row(name)) is not None]


def _row(name: str) -> BoardRow | None:
    model, spec, (free, constants) = models.load(name), get_spec(name), numbers_of(name)
    task: Any = model.task
    if adds_pairs_below(task) != LIMIT:
        return None
    author = spec.source.partition(",")[0] if spec.published else "this project"
    facts: dict[str, Any] = {
        "name": name, "author": author, "free": free, "stated": free, "bits": 32 * free,
        "constants": None if constants is None else len(constants), "distinct": distinct_numbers(model),
    }  # fmt: skip
    if spec.made == BY_HAND:
        found, score = json.loads(CONSTRUCTED.read_text())[name], models.score(model)
        proved = OVER_THE_REALS if "intervals" in found["evidence"] else WITH_ROUNDING
        status = "certified" if found["evidence"].startswith("certified") else "undecided"
        facts |= {"made": BY_HAND, "start": BY_HAND, "on_test": False, "correct": score.correct, "n": score.n}
        facts |= {"proved": proved if status == "certified" else "", "margin": found["smallest_margin"]}
        facts |= {"wrong": "0"} if status == "certified" else {}
        return BoardRow(OWN, "", status, found["evidence"], **facts)
    entry, verdict = models.zoo.read_entry(name), stored_certificate(name)
    score = entry["score"]
    facts |= {"made": "trained", "correct": score["correct"], "n": score["n"], "bits": models.zoo.stored_bits(name)}
    facts |= _start(entry["training"])
    if verdict is None:
        return BoardRow(OWN, "", "undecided", "no verdict is stored", **facts)
    facts |= {"margin": verdict.smallest_margin, "method": verdict.method, "seconds": verdict.seconds}
    if verdict.status == "certified":
        over = verdict.provenance.strength == "certified in intervals"
        facts |= {"proved": OVER_THE_REALS if over else WITH_ROUNDING, "wrong": "0"}
    elif (wrong := verdict.counterexample) is not None:
        facts["counterexample"] = (wrong.problem, wrong.predicted)
        facts["share"] = "" if verdict.accuracy is None else verdict.accuracy.wrong()
    return BoardRow(OWN, "", verdict.status, verdict.finding(), **facts)


def _start(training: dict[str, Any]) -> dict[str, Any]:
    """What a stored model began from, and whether the test set played a part in its selection."""
    if (published := training.get("published")) is not None:
        return {"start": published["start"], "on_test": published["on_test"]}
    if "recipe" not in training:
        return {"start": NOT_STATED}
    _, placed = starts_of(training["recipe"])
    start = "warm" if training.get("start") else "placed" if placed else "random"
    return {"start": start, "on_test": False}
