"""Restricted loss and the marks of clock and pizza, on constructions and against direct computation."""

import math

import numpy as np
import pytest
import torch

import interp
import models
from models.errors import UserError
from models.families.hand_built.modular_programs import ModularOptions, frequencies
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.constant import ConstantWeights
from tests.sampling import sampled


def built(program: str, p: int = 29):
    return models.build(f"modular-{program}-hand-built", p=p)


def values(found, kind: str, pairs: str = "all pairs") -> float:
    return float(found.table.set_index(["logits", "pairs"])["loss"][kind, pairs])


def test_all_logits_cost_what_the_loss_of_all_pairs_is():
    model, p = built("pizza"), 29
    pairs = [(a, b) for a in range(p) for b in range(p)]
    logits = model(model.task.encode(pairs))[:, 2, :p]
    direct = torch.nn.functional.cross_entropy(logits, model.task.answers(pairs))
    assert values(interp.restricted_loss(model), "all logits") == pytest.approx(float(direct), abs=1e-5)


def test_held_out_pairs_and_the_others_make_up_all():
    table = interp.restricted_loss(built("clock")).table
    counts = table[table.logits == "restricted"].set_index("pairs")["pairs counted"]
    assert counts["held out"] + counts["others"] == counts["all pairs"] == 29**2


@pytest.mark.parametrize("part", ["unembed.W_U", "embed.W_E", "blocks.0.attn.W_O"])
@pytest.mark.parametrize("program", ["clock", "pizza"])
def test_a_model_whose_logits_do_not_depend_on_the_operands_has_no_marks(program, part):
    model = built(program, 11)
    weights = {name: value.detach().clone() for name, value in model.all_weights().items()}
    weights[part] = torch.zeros_like(weights[part])
    silenced = ArithmeticTransformer(ConstantWeights(model.config, weights), model.task, name="silenced").eval()
    with pytest.raises(UserError):
        interp.group_symmetry(silenced)


def test_no_pair_and_answer_counts_twice():
    found = interp.group_symmetry(built("pizza", 5), n=2048)
    assert found.provenance.n == 5**3 and found.provenance.strength == "exhaustive"
    assert interp.group_program(built("pizza", 5), n=2048).provenance.n == 5**2


def test_distance_irrelevance_is_the_ratio_of_spreads():
    model, p = built("pizza", 13), 13
    pairs = [(a, b) for a in range(p) for b in range(p)]
    logits = model(model.task.encode(pairs))[:, 2, :p]
    right = (logits - logits.mean(-1, keepdim=True)).gather(1, model.task.answers(pairs)[:, None]).reshape(p, p)
    spreads = [np.std([float(right[(b + d) % p, b]) for b in range(p)]) for d in range(p)]
    found = interp.group_symmetry(model).table.set_index("mark")["value"]["distance irrelevance"]
    assert found == pytest.approx(np.mean(spreads) / np.std(right.detach().numpy()), rel=1e-4)


@pytest.mark.parametrize("ask", [interp.restricted_loss, interp.group_symmetry, interp.group_program])
def test_a_task_without_a_group_is_refused(ask):
    with pytest.raises(UserError, match="does not apply"):
        ask(models.load("microadder-57"))


# ---- the constructions


@pytest.mark.parametrize(
    "program, p",
    sampled(
        [("clock", 59), ("pizza", 59), ("clock", 5), ("pizza", 5), ("table", 13)],
        ("pizza", 59),
        ("clock", 5),
        ("table", 13),
    ),
)
def test_a_construction_is_proved_on_all_pairs_with_rounding(program, p):
    verdict = interp.certify(built(program, p))
    assert verdict.status == "certified" and verdict.provenance.n == p**2
    assert verdict.provenance.strength == "certified with rounding"


def test_the_chosen_frequencies_tell_wrong_answers_apart_best():
    p = 13
    lack = lambda chosen: min(sum(1 - math.cos(2 * math.pi * k * d / p) for k in chosen) for d in range(1, p))  # noqa: E731
    others = [(1, k, j) for k in range(2, 7) for j in range(k + 1, 7)]
    assert lack(frequencies(p)) == pytest.approx(max(map(lack, others)))


@pytest.mark.parametrize("bad", [{"p": 4}, {"p": 12}, {"p": 3}, {"eta": -1.0}])
def test_a_construction_that_cannot_be_is_refused(bad):
    with pytest.raises(UserError):
        ModularOptions(**bad)


def test_figures_show_the_values_of_the_table():
    program, loss = interp.group_program(built("clock")), interp.restricted_loss(built("clock"))
    drawn = np.asarray(program.figure().data[0].x, dtype=float)  # long names stand down the side
    np.testing.assert_allclose(drawn, program.to_dataframe()["share"])
    grid = np.asarray(loss.figure().data[0].z, dtype=float)  # [pairs, logits]
    np.testing.assert_allclose(
        grid, loss.pivot("loss").loc[loss.table["pairs"].unique(), loss.table["logits"].unique()]
    )
