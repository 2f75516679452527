"""Exams of the questions about several models: beside each other, aligned, with each other's parts."""

from __future__ import annotations

from typing import Any

import interp
from interp.compare.comparison_result import Comparison
from interp.compare.model_table import ModelTable
from interp.compare.swap_result import Swaps
from interp.core.estimate import Estimate
from interp.core.exam import REFUSED, Case, Exam
from studies.population import align, mode_connectivity, population, sameness, seed_distances, solution_classes
from studies.population.mode_connectivity import ModeConnectivity
from studies.population.population import Population
from studies.population.seed_distances import SeedDistances
from tests.exams import Briefly, register_exam
from tests.exams.subjects import looks_at, looks_everywhere, moved, negated, scaled, shaken, trained, untrained, without

WITHOUT_CONTROL = 0
ASKED = ("score", "certify", "attention_by_role")


def _apart(found: Comparison) -> dict[str, float]:
    """Distances of where heads look, of what tokens write, and of the answers."""
    quantities = {"heads": "attention by role", "OV": "OV: token to logits", "answers": "logits by digit sum, carry"}
    return {name: round(found.distance(quantity), 3) for name, quantity in quantities.items()}


register_exam(
    Exam(
        "compare",
        lambda pair: interp.compare(*pair, n=16),
        _apart,
        presence=Case(lambda: (trained(), moved()), {"heads": 0.0, "OV": 0.0, "answers": 0.0}),
        absence=Case(  # only what is looked at differs
            lambda: (trained(), looks_everywhere()),
            lambda got: got["OV"] == 0 and min(got["heads"], got["answers"]) > 0.3,
        ),
        inversion=Case(  # only what is written differs
            lambda: (trained(), scaled("out_A", -1.0)),
            lambda got: got["heads"] == 0 and got["OV"] == 1 and got["answers"] > 0.3,
        ),
        untrained=Case(lambda: (trained(), untrained()), lambda got: min(got.values()) > 0.7),
    ),
    Briefly(slow_exam=True),
)


def _answers(found: ModelTable) -> list[float | None]:
    """How often it is right, whether on all inputs, and the gap of attention."""
    return [
        round(answer.value, 2) if isinstance(answer, Estimate) else None for answer in found.rows[0].answers.values()
    ]


register_exam(
    Exam(
        "compare_models",
        lambda model: interp.compare_models([model], questions=ASKED, n=40),
        _answers,
        presence=Case(trained, [1.0, 1.0, 2.3]),
        absence=Case(lambda: without("out_A"), [0.0, 0.0, 2.3]),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), lambda got: got[0] == 0 and got[2] == 2.3),
        untrained=Case(untrained, lambda got: got[:2] == [0.0, 0.0] and abs(got[2]) < 1),
    ),
    Briefly(options={"questions": ["score", "circle_fit"]}, slow_exam=True),
)


def _before_and_after(found: Any) -> tuple[float, float, float]:
    """Distance of all parameters as stored and aligned, and of what attention writes, aligned."""
    table = found.distances().set_index("component")
    return round(table.before["all"], 3), round(table.after["all"], 3), round(table.after["OV"], 3)


register_exam(
    Exam(
        "align",
        lambda pair: align(*pair),
        _before_and_after,
        presence=Case(lambda: (trained(), moved()), lambda got: got[0] > 0.2 and got[1:] == (0.0, 0.0)),
        absence=Case(lambda: (trained(), scaled("norm_w", 2.0)), lambda got: got[0] == got[1] > 0 == got[2]),
        inversion=Case(lambda: (trained(), scaled("out_A", -1.0)), lambda got: got[0] == got[1] and got[2] == 1.0),
        untrained=Case(lambda: (untrained(1), untrained(2)), lambda got: got[1] > 0.5 and got[2] > 0.5),
    )
)


def _barriers(found: ModeConnectivity) -> tuple[float, float, float, float]:
    """Barrier as stored and aligned, and whole answers right on the aligned line: at the better end, half-way."""
    exact = found.table[found.table.path == "aligned"].exact.tolist()
    stored, aligned = (round(found.barrier(path), 3) for path in ("as stored", "aligned"))
    return stored, aligned, max(exact[0], exact[-1]), exact[len(exact) // 2]


register_exam(
    Exam(
        "mode_connectivity",
        lambda pair: mode_connectivity(*pair, points=5, n=16, controls=False),
        _barriers,
        presence=Case(lambda: (trained(), moved()), lambda got: got[0] > 1 and got[1:] == (0.0, 1.0, 1.0)),
        absence=Case(lambda: (trained(), trained()), (0.0, 0.0, 1.0, 1.0)),
        inversion=Case(lambda: (shaken(0.02), shaken(-0.02)), (0.0, 0.0, 0.0, 1.0)),  # a valley between them
        untrained=Case(lambda: (untrained(1), untrained(2)), lambda got: got[2:] == (0.0, 0.0)),
    )
)


def _distances(found: SeedDistances) -> dict[str, float]:
    columns = ("before", "after", "divergence", "agreement")
    return {column: round(float(found.matrix(column)[0, 1]), 3) for column in columns}


register_exam(
    Exam(
        "seed_distances",
        lambda pair: seed_distances(pair, names=["a", "b"], n=16, untrained=WITHOUT_CONTROL),
        _distances,
        presence=Case(
            lambda: (trained(), moved()),
            lambda got: got["before"] > 0.2 and got["after"] == got["divergence"] == 0 and got["agreement"] == 1,
        ),
        absence=Case(lambda: (trained(), without("out_A")), lambda got: got["after"] > 0.25 and got["agreement"] == 0),
        inversion=Case(  # the same numbers, and the opposite answers
            lambda: (trained(), negated("blocks.0.hook_resid_post")),
            {"before": 0.0, "after": 0.0, "divergence": 1.0, "agreement": 0.0},
        ),
        untrained=Case(lambda: (untrained(1), untrained(2)), lambda got: got["after"] > 0.5 and got["agreement"] == 0),
    )
)


register_exam(
    Exam(
        "solution_classes",
        lambda pair: solution_classes(pair),
        lambda found: (len(found.classes()), round(float(found.distances[0]), 3)),
        presence=Case(lambda: (trained(), moved()), (1, 0.0)),
        absence=Case(lambda: (trained(), scaled("out_A", -1.0)), lambda got: got[0] == 2 or got[1] > 0),
        inversion=Case(lambda: (trained(), untrained()), lambda got: got[0] == 2),
        untrained=Case(lambda: (untrained(1), untrained(2)), lambda got: got[0] == 2 and got[1] > 0.5),
    )
)


def _held(found: Population) -> set[str]:
    """What sets both members, which are the same model, apart from untrained copies."""
    return set(found.shared())


register_exam(
    Exam(
        "population",
        lambda model: population([model, model], questions=["score", "attention_by_role"], n=200),
        _held,
        presence=Case(trained, {"score", "attention_by_role"}),
        absence=Case(lambda: without("out_A"), {"attention_by_role"}),  # it still looks, and passes nothing on
        inversion=Case(lambda: looks_at(0.04, 0.4), {"attention_by_role"}),  # the other way round, as far apart
        untrained=Case(untrained, lambda got: "score" not in got),
    )
)


def _swapped(found: Swaps) -> tuple[float, float, float]:
    """Whole answers right: of the model, with the other's pattern, and with the other's MLP."""
    pattern, mlp = (float(found.swapped(name)["exact"]) for name in ("L0H0 pattern", "L0.mlp"))
    return float(found.whole["exact"]), pattern, mlp


register_exam(
    Exam(
        "swap_components",
        lambda pair: interp.swap_components(
            *pair, components=["L0H0 pattern", "L0.mlp"], n=24, n_fit=48, untrained=WITHOUT_CONTROL
        ),
        _swapped,
        presence=Case(lambda: (trained(), moved()), (1.0, 1.0, 1.0)),
        absence=Case(lambda: (trained(), looks_everywhere()), (1.0, 0.0, 0.0)),
        inversion=Case(lambda: (looks_everywhere(), trained()), (0.0, 1.0, 0.0)),  # the other's pattern mends it
        untrained=Case(lambda: (trained(), untrained()), (1.0, 0.0, 0.0)),
    )
)


register_exam(
    Exam(
        "sameness",
        lambda pair: sameness(*pair, n=48, untrained=2),
        lambda found: found.verdict,
        presence=Case(lambda: (trained(), moved()), "the same"),
        absence=Case(lambda: (trained(), untrained()), "not the same"),
        inversion=Case(lambda: (trained(), negated("blocks.0.hook_resid_post")), "not the same"),
        untrained=Case(lambda: (untrained(), trained()), REFUSED),
    ),
    Briefly(slow_exam=True),
)


register_exam(
    Exam(
        "certified_circuits",
        lambda model: interp.certified_circuits(model, constants=(0, 0), n=256),
        lambda found: [set(names) for names in found.minimal],
        presence=Case(  # queries and keys need no digits: in 0 + 0 they have the length that all digits have
            trained,
            [
                {f"{sender}->{to}" for sender in ("embed", "L0H0") for to in ("L0.mlp", "logits")}
                | {"embed->L0H0.v", "L0.mlp->logits"}
            ],
        ),
        absence=Case(lambda: scaled("out_A", 0.97), REFUSED),  # wrong on 3% of the pairs
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), REFUSED),
        untrained=Case(untrained, REFUSED),
    ),
    Briefly(slow=True, slow_exam=True, but={"order": "Its proofs judge digits that are tokens 0 to 9."}),
)
