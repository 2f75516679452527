"""Exams of the probes that touch: patching, edges, ablation, interchange."""

from __future__ import annotations

from typing import Any

import interp
import models
from interp.core.exam import REFUSED, Case, Exam
from tests.exams import Briefly, register_exam
from tests.exams.rules import bypassed, chains, copies, ripples, running
from tests.exams.subjects import (
    carry_pairs,
    scaled,
    trained,
    untrained,
    without,
)

register_exam(
    Exam(
        "which_algorithm",
        lambda model: interp.which_algorithm(model, n=150),
        lambda found: found.winner(),
        presence=Case(lambda: running(chains), ("chained",)),
        absence=Case(lambda: running(copies), lambda got: got is None),
        inversion=Case(lambda: running(ripples), ("ripple", "look-ahead")),
        untrained=Case(untrained, lambda got: got is None),
    )
)


register_exam(
    Exam(
        "smallest_circuit",
        lambda asked: interp.smallest_circuit(*asked, n_random=5),
        lambda found: set(found.edges),
        presence=Case(
            lambda: carry_pairs(trained()),
            {"embed->L0H0.v", "L0H0->L0.mlp", "L0H0->logits", "L0.mlp->logits"},
        ),
        absence=Case(lambda: carry_pairs(without("out_A")), REFUSED),
        inversion=Case(  # the pairs the other way round: the same edges carry the other answer
            lambda: carry_pairs(trained(), turned=True), lambda got: {"embed->L0H0.v", "L0.mlp->logits"} <= got
        ),
        untrained=Case(lambda: carry_pairs(untrained()), REFUSED),
    )
)


register_exam(
    Exam(
        "all_circuits",
        lambda asked: interp.all_circuits(*asked),
        lambda found: (found.unique, set(found.minimal[0])),
        presence=Case(
            lambda: carry_pairs(trained()),
            (True, {"embed->L0H0.v", "L0H0->L0.mlp", "L0H0->logits", "L0.mlp->logits"}),
        ),
        absence=Case(lambda: carry_pairs(without("out_A")), REFUSED),
        inversion=Case(  # the pairs the other way round: the same edges carry the other answer
            lambda: carry_pairs(trained(), turned=True), lambda got: {"embed->L0H0.v", "L0.mlp->logits"} <= got[1]
        ),
        untrained=Case(lambda: carry_pairs(untrained()), REFUSED),
    )
)


def _drops(found: Any) -> dict[str, float]:
    table = found.table["drop"].sel(stratum="all").squeeze(drop=True)
    return dict(zip(table.component.values.tolist(), table.values.tolist(), strict=True))


register_exam(
    Exam(
        "component_ablation",
        lambda model: interp.component_ablation(model, replacement="zero", n=64, unchanged="keep"),
        _drops,
        presence=Case(trained, lambda got: got["L0H0"] > 0.7 and got["L0.mlp"] > 0.7),
        absence=Case(bypassed, lambda got: max(map(abs, got.values())) < 0.1),  # right by other means
        inversion=Case(lambda: scaled("out_A", -1.0), REFUSED),  # a head that writes the opposite: there is no answer
        untrained=Case(untrained, REFUSED),
    )
)


register_exam(
    Exam(
        "activation_patching",
        lambda asked: interp.activation_patching(asked[0], asked[1], site="v", by="role"),
        lambda sweep: sweep.strongest(),
        presence=Case(lambda: carry_pairs(trained()), lambda got: "previous operands" in got[0] and got[1] > 0.95),
        absence=Case(lambda: carry_pairs(without("out_A")), REFUSED),  # nothing to restore
        inversion=Case(
            lambda: carry_pairs(trained(), turned=True), lambda got: "previous operands" in got[0] and got[1] > 0.95
        ),
        untrained=Case(lambda: carry_pairs(untrained()), REFUSED),
    )
)


def _strength(found: Any) -> dict[str, float]:
    """Mean effect of every edge, exactly measured."""
    frame = found.to_dataframe()
    return dict(zip(frame.edge, frame["exact" if "exact" in frame else "effect"], strict=True))


register_exam(
    Exam(
        "path_patching",
        lambda asked: interp.path_patching(*asked),
        _strength,
        presence=Case(
            lambda: carry_pairs(trained()), lambda got: got["embed->L0H0.v"] > 20 and got["embed->L0H0.q"] == 0
        ),
        absence=Case(lambda: carry_pairs(without("out_A")), lambda got: got == REFUSED or got["embed->L0H0.v"] == 0),
        inversion=Case(lambda: carry_pairs(trained(), turned=True), lambda got: got["embed->L0H0.v"] > 20),
        untrained=Case(lambda: carry_pairs(untrained()), lambda got: max(map(abs, got.values())) < 5),
    )
)


register_exam(
    Exam(
        "edge_attribution",
        lambda asked: interp.edge_attribution(*asked),
        _strength,
        presence=Case(lambda: carry_pairs(trained()), lambda got: got["embed->L0H0.v"] > 20),
        absence=Case(
            lambda: carry_pairs(without("out_A")), lambda got: got == REFUSED or abs(got["embed->L0H0.v"]) < 1e-6
        ),
        inversion=Case(lambda: carry_pairs(trained(), turned=True), lambda got: got["embed->L0H0.v"] > 20),
        untrained=Case(lambda: carry_pairs(untrained()), lambda got: max(map(abs, got.values())) < 5),
    ),
    Briefly(slow_exam=True),
)


register_exam(
    Exam(
        "causal_scrubbing",
        lambda model: interp.causal_scrubbing(model, interp.scrubbing_hypothesis(), n=48),
        lambda found: found.cell("recovered", column="all").value,
        presence=Case(trained, lambda got: got > 0.99),
        absence=Case(lambda: without("out_A"), REFUSED),
        inversion=Case(lambda: scaled("out_A", -1.0), REFUSED),
        untrained=Case(untrained, REFUSED),
    ),
    Briefly(options={"claims": interp.scrubbing_hypothesis()}, slow_exam=True),
)


register_exam(
    Exam(
        "interchange_intervention",
        lambda model: interp.interchange_intervention(model, "total", 4, n=48),
        lambda found: found.largest("accuracy").value,
        presence=Case(trained, lambda got: got > 0.95),
        absence=Case(lambda: without("out_A"), lambda got: got == REFUSED or got < 0.7),
        inversion=Case(lambda: scaled("out_A", -1.0), lambda got: got == REFUSED or got < 0.7),
        untrained=Case(untrained, lambda got: got == REFUSED or got < 0.7),
    ),
    Briefly(options={"variable": "digit_sum", "column": 0, "n_train": 64}),
)


def _largest_drops(found: Any) -> dict[str, float]:
    """Accuracy lost without the number of a parameter that costs most."""
    frame = found.to_dataframe()
    return frame.groupby(frame.parameter.str.split("[").str[0])["drop"].max().to_dict()


register_exam(
    Exam(
        "parameter_ablation",
        lambda model: interp.parameter_ablation(model, n=32),
        _largest_drops,
        presence=Case(trained, lambda got: got["W_fc1"] > 0.3),
        absence=Case(lambda: without("W_fc1"), REFUSED),  # an adder that answers nothing has nothing to lose
        inversion=Case(lambda: scaled("W_fc1", -1.0), REFUSED),
        untrained=Case(untrained, REFUSED),
    ),
    Briefly(lambda model: {"n": 8, "pairs": False, "only": [next(iter(model.weight_map.own()))]}, slow_exam=True),
)


register_exam(
    Exam(
        "scrubbing_hypothesis",
        lambda model: interp.causal_scrubbing(model, interp.scrubbing_hypothesis(), n=64),
        lambda found: tuple(found.table.loc[0, ["recovered", "recovered_irrelevant"]] > 0.99),
        presence=Case(lambda: models.load("microadder-57-by-hand"), (True, False)),
        absence=Case(bypassed, (True, True)),  # what it claims to matter does not
        inversion="Claims say through which values a site matters, and none of that has a sign.",
        untrained=Case(untrained, REFUSED),
    ),
    Briefly(slow_exam=True),
)
