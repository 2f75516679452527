"""What proofs cost: the counter, the proof by the program's states, and the picture of what is stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import models
from interp.core.as_json import decode
from interp.core.stored_data import DATA
from interp.papers.studies.comparison_price import BRUTE, CARRY, PROGRAM, Counted, Price, by_program, counted
from interp.proofs.balls import FLOAT32
from interp.proofs.branching import Search
from interp.proofs.one_layer import read_adder
from interp.proofs.trials import random_pairs
from models.checkpoint import read_json
from models.evaluation import margins


def test_operations_are_counted_once_each():
    x, y = counted(np.ones((3, 4))), np.ones((4, 5))
    for made, operations in (
        (lambda: x @ y, 2 * 3 * 4 * 5),
        (lambda: (x + 1) * x, 24),
        (lambda: np.where(x > 2, x, 0.0) - np.ones((3, 4)), 12),  # what comes of a counted array counts
        (lambda: x.sum(0), 12),
        (lambda: np.add(np.zeros((3, 4)), x, out=np.zeros((3, 4))), 12),
        (lambda: np.concatenate((x, x)).argmax(0) + 1, 0),
    ):
        Counted.operations = 0
        plain = np.asarray(made())
        assert Counted.operations == operations and plain.dtype in (np.float64, np.int64)


def test_the_programs_states_bound_every_margin_and_counting_changes_nothing():
    model = models.load("microadder-57")
    adder = read_adder(model)
    search = Search(adder, FLOAT32)
    bounds = {key: by_program(search, key, 0.0) for key in list(search.attention.queries)[20:24]}
    again = {key: by_program(Search(counted(adder), FLOAT32, counted(search.attention)), key, 0.0) for key in bounds}
    assert bounds == again and min(bounds.values()) > 0 and search.boxes < 100 * len(bounds)
    pairs = random_pairs(4000, seed=0)
    with torch.inference_mode():
        tokens, targets = model.task.encode(pairs), model.task.targets(pairs)
        found = margins(model(tokens)[:, list(model.task.query_positions)], targets)
    for (target, token), bound in bounds.items():
        met = found[tokens[:, model.task.query_positions[target]] == token, target]
        assert len(met) > 100 and bound <= float(met.min()) < 20 * bound


def test_the_picture_has_the_stored_numbers():
    stored: Price = decode(Price, read_json(DATA / "experiments" / "comparison-price.json")["price"])
    assert stored.table.groupby("model").proof.apply(list).tolist() == [[BRUTE, CARRY, PROGRAM]] * 2
    assert (stored.table.bound[stored.table.proof != BRUTE] < stored.table.known[stored.table.proof != BRUTE]).all()
    assert (stored.table.groupby("model").operations.diff().dropna() < 0).all()
    drawn = {trace.name: (trace.x[0], trace.y[0]) for trace in stored.figure().data}
    row = stored.table[(stored.table.model == "adder-456") & (stored.table.proof == PROGRAM)].iloc[0]
    assert (
        drawn[f"adder-456: {PROGRAM}"] == pytest.approx((row.operations, 100 * row.bound / row.known))
        and len(drawn) == 6
    )
