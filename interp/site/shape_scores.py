"""Length generalisation of a model: the stored scores of its entry, for every seed and shape."""

from __future__ import annotations

import json

import pandas as pd

from interp.core.results import Provenance
from interp.probes.score_result import Scores
from models.errors import UserError
from models.zoo import entry_file, read_entry


def shape_scores(entry: str) -> Scores:
    """The stored scores of a zoo entry by seed and shape; the first shape is the longest of the training set.

    The numbers are those of the card: :mod:`models.training.publish.kinds` scored every seed on the same
    problems of each shape, which is (operands, digits), the digits of both factors, or a number of bits.

    Raises:
        UserError: no such entry, or one whose task has a single shape.
    """
    config = read_entry(entry)
    score = config["score"]
    if "shapes" not in score:
        raise UserError(f"{entry} has no scores by shape: its task has one.")
    n = {tuple(row["shape"]): row["n"] for row in score["shapes"]}
    seeds = json.loads(entry_file(entry, "seeds.json"))
    rows = [(row["seed"], tuple(shape), correct) for row in seeds for shape, correct in row["shapes"]]
    frame = pd.DataFrame(
        [(seed, " x ".join(map(str, shape)), n[shape], correct) for seed, shape, correct in rows],
        columns=["seed", "shape", "n", "correct"],
    )
    shapes = [" x ".join(map(str, shape)) for shape in n]
    table = frame.set_index(["seed", "shape"]).to_xarray().sel(shape=shapes)
    source = f"problems a shape, teacher forced, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    provenance = Provenance(score["n"], score["seed"], source)
    return Scores(config["model"], table, provenance, "seed", about={"chosen": config["training"]["seed"]})
