"""The exams, one a public probe; what has none yet is listed, and may only become less."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

import interp
from interp.core.results import Provenance
from interp.probes.dynamics import Reading, compute_training_dynamics
from tests.exams.exam import REFUSED, Case, Exam, register_exam
from tests.exams.rules import chains, copies, ripples, running
from tests.exams.subjects import (
    SHUFFLED,
    arc,
    carry_pairs,
    helix,
    looks_at,
    negated,
    noise,
    planted,
    scaled,
    trained,
    untrained,
    without,
)

LN10 = math.log(10)
MADE_UP = Provenance(10, 0, "made up")

#: Public probes without an exam. Each belongs to a paper's own room, samples for long, or proves: what it says is
#: checked by the tests of its room alone.
WITHOUT_EXAM = {
    *("compare", "compare_models", "explore", "align", "mode_connectivity", "seed_distances", "swap_components"),
    *("certify", "accuracy_bounds", "grokking_curves", "chained_claims", "patch_sweep"),
    *("exact_match_grid", "offset_sweep", "greedy_agreement"),
    *("named_stream", "sum_units", "needed_attention", "head_roles", "pattern_substitution", "first_errors"),
    *("attended_growth", "coupled_comparison", "head_writes"),
}


def _gap(found: interp.AttentionByRole) -> tuple[float, bool]:
    """The mean gap, and whether the statement tells it."""
    return found.mean_gap()[0], "to 1" in found.statement()


register_exam(
    Exam(
        "attention_by_role",
        lambda model: interp.attention_by_role(model, n=32),
        _gap,
        presence=Case(lambda: looks_at(0.4, 0.04), lambda got: abs(got[0] - LN10) < 1e-3 and got[1]),
        absence=Case(lambda: looks_at(1 / 25, 1 / 25), lambda got: abs(got[0]) < 1e-3),
        inversion=Case(lambda: looks_at(0.04, 0.4), lambda got: abs(got[0] + LN10) < 1e-3),
        untrained=Case(untrained, lambda got: abs(got[0]) < 1),
    )
)


def _carry_out(found: interp.CarryUnits) -> tuple[list[Any], bool]:
    """What the units are said to carry and how, and whether unit 0 is on with the carry out."""
    verdicts = found.verdicts()
    return (
        list(zip(verdicts.signal, verdicts.kind, strict=True)),
        bool(found.table.auroc.sel(layer=0, unit=0, signal="carry_out") > 0.5),
    )


register_exam(
    Exam(
        "carry_units",
        lambda model: interp.carry_units(model, n=400),
        _carry_out,
        presence=Case(trained, lambda got: got[0] == [("carry_out", "switch")] * 2 and got[1]),
        absence=Case(lambda: without("W_fc1"), lambda got: {kind for _, kind in got[0]} == {"none"}),
        inversion=Case(lambda: negated("blocks.0.mlp.hook_pre"), lambda got: not got[1]),
        untrained=Case(untrained, lambda got: {kind for _, kind in got[0]} == {"none"}),
    )
)
register_exam(
    Exam(
        "circle_fit",
        interp.circle_fit,
        lambda fit: (fit.is_arc, fit.ordered, round(fit.order, 6)),
        presence=Case(arc, lambda got: got == (True, True, 1.0)),
        absence=Case(lambda: arc(SHUFFLED), lambda got: got[:2] == (True, False)),
        inversion=Case(lambda: arc(list(range(10))[::-1]), lambda got: got == (True, True, -1.0)),
        untrained=Case(lambda: noise(10, 5), lambda got: got[:2] == (False, False)),
    )
)
register_exam(
    Exam(
        "helix_fit",
        lambda rows: interp.helix_fit(rows, permutations=300),
        lambda fit: (round(fit.period, 3), fit.p_value < 0.05),
        presence=Case(helix, lambda got: got == (10.0, True)),
        absence=Case(lambda: helix()[[*SHUFFLED, 11, 10]], lambda got: not got[1]),
        inversion=Case(lambda: helix(-1), lambda got: got == (-10.0, True)),
        untrained=Case(lambda: noise(12, 3, seed=2), lambda got: not got[1]),
    )
)
register_exam(
    Exam(
        "fourier_spectrum",
        lambda table: interp.fourier_spectrum(table, permutations=300),
        lambda found: (found.main, found.p_value < 0.05),
        presence=Case(lambda: np.exp(2j * np.pi * 3 * np.arange(10) / 10).view(float).reshape(10, 2), (3, True).__eq__),
        absence=Case(lambda: arc(SHUFFLED), lambda got: not got[1]),
        inversion=Case(  # the other way round is the same frequency
            lambda: np.exp(-2j * np.pi * 3 * np.arange(10) / 10).view(float).reshape(10, 2), (3, True).__eq__
        ),
        untrained=Case(lambda: noise(10, 6, seed=1), lambda got: not got[1]),
    )
)
register_exam(
    Exam(
        "which_algorithm",
        lambda model: interp.which_algorithm(model, n=150),
        lambda found: found.winner(),
        presence=Case(lambda: running(chains), ("chained",).__eq__),
        absence=Case(lambda: running(copies), lambda got: got is None),
        inversion=Case(lambda: running(ripples), ("ripple", "look-ahead").__eq__),
        untrained=Case(untrained, lambda got: got is None),
    )
)
register_exam(
    Exam(
        "linear_probes",
        lambda model: interp.linear_probes(model, n=600, signals="carry_out", sites="L0 post"),
        lambda found: (float(found.overall("carry_out").accuracy[0]), float(found.overall("carry_out").untrained[0])),
        presence=Case(trained, lambda got: got[0] > 0.98 > got[1]),
        absence=Case(lambda: planted("blocks.0.hook_resid_post", lambda x: 0 * x), lambda got: got[0] < 0.65),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), lambda got: got[0] > 0.98),  # signs are no matter
        untrained=Case(untrained, lambda got: got[0] < 0.65),
    )
)
register_exam(
    Exam(
        "smallest_circuit",
        lambda asked: interp.smallest_circuit(*asked, n_random=5),
        lambda found: set(found.edges),
        presence=Case(
            lambda: carry_pairs(trained()),
            {"embed->L0H0.v", "L0H0->MLP0", "L0H0->logits", "MLP0->logits"}.__eq__,
        ),
        absence=Case(lambda: carry_pairs(without("out_A")), REFUSED.__eq__),
        inversion=Case(  # the pairs the other way round: the same edges carry the other answer
            lambda: carry_pairs(trained(), turned=True), lambda got: {"embed->L0H0.v", "MLP0->logits"} <= got
        ),
        untrained=Case(lambda: carry_pairs(untrained()), REFUSED.__eq__),
    )
)
register_exam(
    Exam(
        "logit_lens",
        lambda model: interp.logit_lens(model, n=64),
        lambda found: found.table.overall.values.tolist(),
        presence=Case(trained, lambda got: got[-1] == 1.0 and got[0] < 0.2),
        absence=Case(lambda: planted("blocks.0.hook_resid_post", lambda x: 0 * x), lambda got: got[-1] < 0.25),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), lambda got: got[-1] < 0.05),
        untrained=Case(untrained, lambda got: got[-1] < 0.3),
    )
)
register_exam(
    Exam(
        "logit_attribution",
        lambda model: interp.logit_attribution(model, n=64),
        lambda found: found.by_kind().to_dict(),
        presence=Case(trained, lambda got: got["mlp"] > 50 and max(got, key=got.get) == "mlp"),
        absence=Case(lambda: without("W_fc1"), lambda got: abs(got["mlp"]) < 1e-4),
        inversion=Case(lambda: negated("blocks.0.hook_mlp_out"), lambda got: got == REFUSED or got["mlp"] < -10),
        untrained=Case(untrained, lambda got: abs(got["mlp"]) < 20),
    )
)


def _drops(found: Any) -> dict[str, float]:
    table = found.table["drop"].sel(stratum="all").squeeze(drop=True)
    return dict(zip(table.component.values.tolist(), table.values.tolist(), strict=True))


register_exam(
    Exam(
        "component_ablation",
        lambda model: interp.component_ablation(model, methods="zero", n=64, unchanged="keep"),
        _drops,
        presence=Case(trained, lambda got: got["L0H0"] > 0.7 and got["L0 MLP"] > 0.7),
        absence=Case(lambda: without("W_fc1"), lambda got: got["L0 MLP"] == 0),
        inversion=Case(  # a head that writes the opposite: without it no more digits are wrong
            lambda: scaled("out_A", -1.0), lambda got: got["L0H0"] < 0.1
        ),
        untrained=Case(untrained, lambda got: max(map(abs, got.values())) < 0.2),
    )
)
register_exam(
    Exam(
        "double_dissociation",
        lambda model: interp.double_dissociation(model, n=128, signals="carry_out"),
        lambda found: found.sentence().count("a double dissociation (contrast"),
        presence=Case(trained, (1).__eq__),
        absence=Case(lambda: without("W_fc1"), lambda got: got in (0, REFUSED)),
        inversion=Case(lambda: negated("blocks.0.mlp.hook_pre"), lambda got: got in (0, REFUSED)),
        untrained=Case(untrained, lambda got: got in (0, REFUSED)),
    )
)


register_exam(
    Exam(
        "activation_patching",
        lambda asked: interp.activation_patching(*asked, "v", by="role"),
        lambda sweep: sweep.strongest(),
        presence=Case(lambda: carry_pairs(trained()), lambda got: "previous operands" in got[0] and got[1] > 0.95),
        absence=Case(lambda: carry_pairs(without("out_A")), lambda got: math.isnan(got[1])),  # nothing to restore
        inversion=Case(
            lambda: carry_pairs(trained(), turned=True), lambda got: "previous operands" in got[0] and got[1] > 0.95
        ),
        untrained=Case(lambda: carry_pairs(untrained()), lambda got: math.isnan(got[1])),
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
            lambda: carry_pairs(trained()), lambda got: got["embed->L0H0.v"] < -20 and got["embed->L0H0.q"] == 0
        ),
        absence=Case(lambda: carry_pairs(without("out_A")), lambda got: got == REFUSED or got["embed->L0H0.v"] == 0),
        inversion=Case(lambda: carry_pairs(trained(), turned=True), lambda got: got["embed->L0H0.v"] < -20),
        untrained=Case(lambda: carry_pairs(untrained()), lambda got: max(map(abs, got.values())) < 5),
    )
)
register_exam(
    Exam(
        "edge_attribution",
        lambda asked: interp.edge_attribution(*asked),
        _strength,
        presence=Case(lambda: carry_pairs(trained()), lambda got: got["embed->L0H0.v"] < -20),
        absence=Case(
            lambda: carry_pairs(without("out_A")), lambda got: got == REFUSED or abs(got["embed->L0H0.v"]) < 1e-6
        ),
        inversion=Case(lambda: carry_pairs(trained(), turned=True), lambda got: got["embed->L0H0.v"] < -20),
        untrained=Case(lambda: carry_pairs(untrained()), lambda got: max(map(abs, got.values())) < 5),
    )
)
register_exam(
    Exam(
        "causal_scrubbing",
        lambda model: interp.causal_scrubbing(model, interp.chained_claims(), n=48),
        lambda found: found.recovered()[0],
        presence=Case(trained, lambda got: got > 0.99),
        absence=Case(lambda: without("out_A"), REFUSED.__eq__),
        inversion=Case(lambda: scaled("out_A", -1.0), REFUSED.__eq__),
        untrained=Case(untrained, REFUSED.__eq__),
    )
)
register_exam(
    Exam(
        "interchange_sweep",
        lambda model: interp.interchange_sweep(model, "total", 4, n=48),
        lambda found: float(found.accuracy.max()),
        presence=Case(trained, lambda got: got > 0.95),
        absence=Case(lambda: without("out_A"), lambda got: got == REFUSED or got < 0.7),
        inversion=Case(lambda: scaled("out_A", -1.0), lambda got: got == REFUSED or got < 0.7),
        untrained=Case(untrained, lambda got: got == REFUSED or got < 0.7),
    )
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
        absence=Case(lambda: without("W_fc1"), lambda got: got["W_fc1"] == 0),
        inversion=Case(lambda: scaled("W_fc1", -1.0), lambda got: got["W_fc1"] < 0.1),  # without it no less is right
        untrained=Case(untrained, lambda got: max(map(abs, got.values())) < 0.2),
    )
)
register_exam(
    Exam(
        "accuracy_by_chain",
        lambda model: interp.accuracy_by_chain(model, n_per_length=30),
        lambda found: (
            found.to_dataframe().query("problems == 'stratified'").correct.sum()
            / found.to_dataframe().query("problems == 'stratified'").n.sum()
        ),
        presence=Case(trained, (1.0).__eq__),
        absence=Case(lambda: without("out_A"), lambda got: got < 0.1),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), lambda got: got == 0),
        untrained=Case(untrained, lambda got: got < 0.1),
    )
)
register_exam(
    Exam(
        "stress_suites",
        lambda model: interp.stress_suites(model, n=60),
        lambda found: 1 - float(found.to_dataframe().errors.sum() / found.to_dataframe().n.sum()),
        presence=Case(trained, (1.0).__eq__),
        absence=Case(lambda: without("out_A"), lambda got: got < 0.2),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), lambda got: got == 0),
        untrained=Case(untrained, lambda got: got < 0.2),
    )
)


def ties() -> Any:
    """Every logit as large as the right one's."""
    model = untrained()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


register_exam(
    Exam(  # what it looks for is a failure
        "attack",
        lambda model: interp.attack(model, runs=200),
        lambda found: (found.n_wrong["attack"] > 0, found.smallest_margin() > 0),
        presence=Case(lambda: scaled("out_A", 0.97), lambda got: got == (True, False)),
        absence=Case(trained, lambda got: got == (False, True)),
        inversion=Case(ties, lambda got: got == (True, False)),
        untrained=Case(untrained, lambda got: got == (True, False)),
    )
)


def _curve(*values: float) -> Any:
    rows = [(2**i, {("loss", ""): Reading(float(value))}) for i, value in enumerate(values)]
    return compute_training_dynamics(rows, "made up", 0, MADE_UP)


register_exam(
    Exam(
        "training_dynamics",
        lambda found: found,
        lambda found: found.half_way().by[0],
        presence=Case(lambda: _curve(4, 4, 4, 0, 0), (8.0).__eq__),
        absence=Case(lambda: _curve(4, 4, 4, 4, 4), math.isnan),
        inversion=Case(lambda: _curve(4, 0, 4, 4, 0), (16.0).__eq__),  # it falls, and comes back
        untrained=Case(lambda: _curve(*(2.3 + 1e-4 * noise(5, 1)[:, 0])), math.isnan),
    )
)
