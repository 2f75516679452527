"""Exams of the probes that look and do not touch."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch

import interp
import models
from interp.core.estimate import Estimate
from interp.core.exam import REFUSED, Case, Exam
from interp.core.key_roles import ALL_TARGETS
from interp.core.results import Provenance
from interp.probes.attention_by_role import AttentionByRole
from interp.probes.attention_readout import EXPLAINED, RATIO, AttentionReadout
from interp.probes.carry_units import CarryUnits
from interp.probes.learning_curves import LearningCurves
from interp.probes.lens.direct_logit_attribution import by_kind
from interp.probes.training_dynamics import compute_training_dynamics
from tests.exams import Briefly, register_exam
from tests.exams.entries import ENTRY, ask_curves
from tests.exams.subjects import (
    SHUFFLED,
    arc,
    looks_at,
    negated,
    noise,
    planted,
    trained,
    untrained,
    without,
)
from tests.javascript import started_node

LN10 = math.log(10)
MADE_UP = Provenance(10, 0, "made up")


def _gap(found: AttentionByRole) -> tuple[float, bool]:
    """The mean gap, and whether the finding tells it."""
    return found.mean_gap().value, found.has_ratio()


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


def _number(found: AttentionReadout) -> tuple[float, float]:
    return found.value(RATIO), found.value(EXPLAINED)


register_exam(
    Exam(
        "attention_readout",
        lambda model: interp.attention_readout(model, n=64),
        _number,
        presence=Case(trained, lambda got: abs(got[0] - 10) < 0.3 and got[1] > 0.99),
        absence=Case(lambda: looks_at(1 / 25, 1 / 25), lambda got: np.isnan(got[0]) and got[1] < 0.5),
        inversion=Case(lambda: looks_at(0.04, 0.4), lambda got: abs(got[0]) < 0.3),
        untrained=Case(untrained, REFUSED),
    )
)


def _carry_out(found: CarryUnits) -> tuple[list[Any], bool]:
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
        "fourier_spectrum",
        lambda table: interp.fourier_spectrum(table),
        lambda found: (found.main, found.p_value < 0.05),
        presence=Case(lambda: np.exp(2j * np.pi * 3 * np.arange(10) / 10).view(float).reshape(10, 2), (3, True)),
        absence=Case(lambda: arc(SHUFFLED), lambda got: not got[1]),
        inversion=Case(  # the other way round is the same frequency
            lambda: np.exp(-2j * np.pi * 3 * np.arange(10) / 10).view(float).reshape(10, 2), (3, True)
        ),
        untrained=Case(lambda: noise(10, 6, seed=1), lambda got: not got[1]),
    )
)


register_exam(
    Exam(
        "linear_probes",
        lambda model: interp.linear_probes(model, n=600, signals="carry_out", sites="L0 post"),
        lambda found: (found.hardest().value, found.hardest().control),
        presence=Case(trained, lambda got: got[0] > 0.98 > got[1]),
        absence=Case(lambda: planted("blocks.0.hook_resid_post", lambda x: 0 * x), lambda got: got[0] < 0.65),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), lambda got: got[0] > 0.98),  # signs are no matter
        untrained=Case(untrained, lambda got: got[0] < 0.65),
    ),
    Briefly(options={"n": 128, "sites": "L0 mid"}),
)


register_exam(
    Exam(
        "logit_lens",
        lambda model: interp.logit_lens(model, n=64),
        lambda found: found.table.accuracy.sel(target=ALL_TARGETS).values.tolist(),
        presence=Case(trained, lambda got: got[-1] == 1.0 and got[0] < 0.2),
        absence=Case(lambda: planted("blocks.0.hook_resid_post", lambda x: 0 * x), lambda got: got[-1] < 0.25),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), lambda got: got[-1] < 0.05),
        untrained=Case(untrained, lambda got: got[-1] < 0.3),
    )
)


register_exam(
    Exam(
        "direct_logit_attribution",
        lambda model: interp.direct_logit_attribution(model, n=64),
        lambda found: by_kind(found).to_dict(),
        presence=Case(trained, lambda got: got["mlp"] > 50 and max(got, key=got.get) == "mlp"),
        absence=Case(lambda: without("W_fc1"), lambda got: abs(got["mlp"]) < 1e-4),
        inversion=Case(lambda: negated("blocks.0.hook_mlp_out"), lambda got: got == REFUSED or got["mlp"] < -10),
        untrained=Case(untrained, lambda got: abs(got["mlp"]) < 20),
    )
)


TWO_DIGITS = "toygpt-learned-pre"  # four layers


def _read_early(found: Any) -> tuple[float, float, float]:
    """The share of right tokens after layer 0's attention: by the lens, by its control and by the logit lens."""
    own, control, plain = found.table.accuracy.sel(point="L0 mid", target=ALL_TARGETS).values.tolist()
    return own, control, plain


def with_hook(hook: str, factor: float) -> Any:
    model = models.load(TWO_DIGITS)
    model.add_perma_hook(hook, lambda tensor, hook: factor * tensor)
    return model


for _lens, _ask in (
    ("tuned_lens", lambda model: interp.tuned_lens(model, n=500, steps=15)),
    ("jacobian_lens", lambda model: interp.jacobian_lens(model, n=400)),
):
    register_exam(
        Exam(
            _lens,
            _ask,
            _read_early,
            presence=Case(lambda: models.load(TWO_DIGITS), lambda got: got[0] > 0.4 > max(got[1:])),
            absence=Case(lambda: with_hook("hook_embed", 0.0), lambda got: max(got) < 0.35),  # nothing of the problem
            inversion=Case(lambda: with_hook("unembed.hook_out", -1.0), lambda got: got[0] < 0.12),
            untrained=Case(lambda: models.build(TWO_DIGITS, seed=1), lambda got: max(got) < 0.35),
        ),
        Briefly(slow_exam=True),
    )


def turned_queries() -> Any:
    """The trained adder with its queries turned by half a circle: every score has the other sign."""
    model = trained()
    with torch.no_grad():
        model.weight_map.q_angle.add_(math.pi)
    return model


def _score_part(found: Any) -> tuple[set[str], float]:
    """What the largest part is written by, and how large it is."""
    part = found.table.loc[found.table.part.abs().idxmax()]
    return {part.query_source, part.key_source}, float(part.part)


register_exam(
    Exam(
        "attention_attribution",
        lambda model: interp.attention_attribution(model, role="own operands", n=32),
        _score_part,
        presence=Case(trained, lambda got: got[0] == {"pos_embed"} and got[1] > 40),
        absence=Case(lambda: without("W_qk"), lambda got: got[1] == 0),
        inversion=Case(turned_queries, lambda got: got[0] == {"pos_embed"} and got[1] < -40),
        untrained=Case(untrained, lambda got: abs(got[1]) < 20),
    )
)


register_exam(
    Exam(
        "accuracy_by_chain",
        lambda model: interp.accuracy_by_chain(model, n_per_length=30),
        lambda found: found.rate().accuracy,
        presence=Case(trained, (1.0)),
        absence=Case(lambda: without("out_A"), lambda got: got < 0.1),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), lambda got: got == 0),
        untrained=Case(untrained, lambda got: got < 0.1),
    )
)


register_exam(
    Exam(
        "score",
        lambda model: interp.score(model, n=50, by="target"),
        lambda found: found.accuracy.values[1:10].tolist(),
        presence=Case(trained, [1.0] * 9),
        absence=Case(lambda: without("out_A"), lambda got: max(got) < 0.5),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), [0.0] * 9),
        untrained=Case(untrained, lambda got: max(got) < 0.5),
    )
)


def _curve(*values: float) -> Any:
    rows = [(2**i, {("loss", ""): Estimate(float(value))}) for i, value in enumerate(values)]
    return compute_training_dynamics(rows, "made up", 0, MADE_UP)


register_exam(
    Exam(
        "training_dynamics",
        lambda found: found,
        lambda found: found.half_way().by[0],
        presence=Case(lambda: _curve(4, 4, 4, 0, 0), (8.0)),
        absence=Case(lambda: _curve(4, 4, 4, 4, 4), math.isnan),
        inversion=Case(lambda: _curve(4, 0, 4, 4, 0), (16.0)),  # it falls, and comes back
        untrained=Case(lambda: _curve(*(2.3 + 1e-4 * noise(5, 1)[:, 0])), math.isnan),
    )
)


register_exam(
    Exam(
        "loss",
        lambda model: interp.loss(model, n=64),
        lambda found: found.table["loss"][0],
        presence=Case(trained, lambda got: 0 < got < 0.1),
        absence=Case(lambda: without("out_A"), lambda got: got > 1),
        inversion=Case(lambda: negated("blocks.0.hook_resid_post"), lambda got: got > 2.3),
        untrained=Case(untrained, lambda got: got > 1),
    )
)


def _grokked(found: LearningCurves) -> tuple[int, dict[int, int]]:
    """Seeds that answer the whole test set, and the first step of each at which it was perfect on validation."""
    return found.grokked(ENTRY).correct, found.onset(ENTRY)


register_exam(
    Exam(
        "learning_curves",
        partial(ask_curves, interp.learning_curves),
        _grokked,
        presence=Case(lambda: ([[0, 0, 1, 1], [0, 0, 0.5, 0.5]], [100, None]), (1, {0: 3000})),
        absence=Case(lambda: ([[0, 0, 0, 0.99]], [99]), (0, {})),
        inversion=Case(lambda: ([[1, 1, 0, 0]], [0]), (0, {0: 1000})),  # it forgets again
        untrained=Case(lambda: (abs(noise(3, 4)) % 0.2, [None] * 3), (0, {})),
    )
)


def _answered(widget: Any) -> list[str]:
    """What the view's own forward answers, and what is right."""
    body = """const [pack] = data.models, layout = layoutOf(data.problem, pack.task, pack.cfg);
      const { answer } = run(unpack(pack, pack.data.length - 1), layout);
      return [answer, layout.right].map((tokens) => numberOf(layout, pack.task, tokens));"""
    with started_node() as ask:
        return ask(body, widget.start)


def _read_out(factor: float) -> Any:
    """The trained adder with its unembedding multiplied: the explorer reads weights, and takes no hooks."""
    model = trained().dense_copy()
    with torch.no_grad():
        dict(model.weight_map.named_parameters())["unembed/W_U"].mul_(factor)
    return model


register_exam(
    Exam(
        "explore",
        lambda model: interp.explore(model, problem="57+48"),
        _answered,
        presence=Case(trained, ["105", "105"]),
        absence=Case(lambda: _read_out(0.0), lambda got: got[0] != got[1]),
        inversion=Case(lambda: _read_out(-1.0), ["99999999990", "105"]),  # as of a stream with its sign turned
        untrained=Case(untrained, lambda got: got[0] != got[1]),
    ),
    Briefly(slow_exam=True),
)
