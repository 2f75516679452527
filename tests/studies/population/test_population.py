"""What many models have in common is counted from numbers in which it is planted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import models
from interp.compare.model_table import TableQuestion
from interp.core.results import Provenance
from models.errors import UserError
from models.rates import Rate
from studies.population import population, solution_classes
from studies.population.population import Population
from studies.population.solution_classes import SolutionClasses

PROVENANCE = Provenance(10, 0, "problems")
NAN = float("nan")


def made(members: list[float], controls: list[float], architectures: str = "") -> Population:
    """A population with one question and the given numbers."""
    frames = [
        pd.DataFrame({"name": "m", "architecture": list(architectures) or "a", "score": values})
        for values in (members, controls)
    ]
    return Population((TableQuestion("score", "right", "How often?", "share"),), *frames, PROVENANCE)


@pytest.mark.parametrize(
    ("members", "controls", "apart"),
    [
        ([1.0, 1.0, 0.9], [0.0, 0.1, 0.2], Rate(3, 3)),
        ([0.0, 0.1, 0.2], [0.9, 1.0, 1.0], Rate(3, 3)),  # below all copies
        ([1.0, 0.1, 0.0], [0.5, 0.1, 0.2], Rate(3, 1)),  # as many below: the side above counts
        ([1.0, 0.05, 0.04], [0.5, 0.1, 0.2], Rate(3, 2)),
        ([0.2, 0.2, 0.2], [0.2, 0.2, 0.2], Rate(3, 0)),  # what is built in sets nothing apart
        ([1.0, NAN, 0.9], [0.0, 0.1, 0.2], Rate(2, 2)),
        ([1.0, 1.0, 1.0], [NAN, NAN, NAN], Rate(0, 0)),
    ],
)
def test_a_member_is_set_apart_beyond_every_untrained_copy(
    members: list[float], controls: list[float], apart: Rate
) -> None:
    found = made(members, controls)
    assert found.apart("score") == apart
    assert found.shared() == (["score"] if apart == Rate(3, 3) else [])
    row = found.to_dataframe().iloc[0]
    assert (row["k"], row["n"]) == (apart.correct, apart.n)
    assert not apart.n or (row["low"], row["high"]) == apart.interval


def test_architectures_are_counted_apart() -> None:
    found = made([1.0, 1.0, 0.1], [0.0, 0.1, 0.2], "aab")
    assert [found.apart("score", name).correct for name in ("all", "a", "b")] == [2, 2, 0]
    for unknown in (("scor", "all"), ("score", "c")):
        with pytest.raises(UserError):
            found.apart(*unknown)


def test_every_member_has_an_untrained_copy_of_its_own() -> None:
    found = population([models.load("microadder-57")] * 3, questions=["attention_by_role"], n=50)
    assert found.members["attention_by_role"].nunique() == 1 and found.controls["attention_by_role"].nunique() == 3


def test_a_population_is_two_models_or_more_that_something_applies_to() -> None:
    for few in ([], [models.load("microadder-57")]):
        with pytest.raises(UserError, match="two models or more"):
            population(few)
    with pytest.raises(UserError, match="None of these questions"):
        population([models.build("parity-hand-built")] * 2, questions=["circle_fit"])


def planted(untrained: list[float]) -> SolutionClasses:
    """a, b and c in a chain, d apart: ab, ac, ad, bc, bd, cd."""
    apart = np.array([0.1, 0.3, 0.5, 0.1, 0.5, 0.5])
    return SolutionClasses("m", ("d", "a", "b", "c"), apart[[2, 4, 5, 0, 1, 3]], np.array(untrained), PROVENANCE)


def test_members_of_one_class_are_connected_by_short_distances():
    found = planted([0.4, 0.6])
    assert found.limit == 0.2 and found.classes() == [["a", "b", "c"], ["d"]] and found.labels.tolist() == [1, 0, 0, 0]
    nearest = found.to_dataframe().set_index("model")
    assert nearest.nearest[["a", "b"]].tolist() == ["b", "a"] and nearest.distance["d"] == 0.5
    assert found.summary() | {"closest pair": 0.1, "classes": 2, "largest": 3} == found.summary()


def test_without_a_control_no_two_are_one_class_and_far_ones_never_are():
    assert len(planted([]).classes()) == len(planted([0.1]).classes()) == 4
    assert len(planted([1.1]).classes()) == 1


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_classes_want_two_models_with_a_name_each(names: list[str]):
    with pytest.raises(UserError):
        solution_classes([models.load("microadder-57")] * 2, names=names)
    with pytest.raises(UserError):
        solution_classes([models.load("microadder-57"), models.load("adder-456")])
