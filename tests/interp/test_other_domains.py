"""Every public question about tasks whose digits are not decimal: a right result, or one sentence that refuses it."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import interp
import models
from interp.causal.interchange import Claim, Place
from interp.proofs import check_certificate
from models.errors import UserError
from models.importers.stock import from_transformer_lens
from models.tasks import FormattedTask, Task, TaskVariables
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.population import align, sameness
from tests.comparing import numbers_are_finite
from tests.exams.asking import ask_briefly, asked_of_models
from tests.other_tasks import column_addition, exact_adder, modular_addition
from tests.sampling import sampled

TASKS = {
    "residues modulo 113": modular_addition(113),
    "residues modulo 12": modular_addition(12),
    "base 3": column_addition(3),
    "bits": column_addition(2, 5),
    "base 7": column_addition(7),
    "base 12": column_addition(12),
}
N = 40


#: Asked beside the probes, of a model and another one of its task.
MORE: dict[str, Callable[[Any, Any], Any]] = {
    "explore": lambda a, b: interp.explore(a),
    "align": align,
    "sameness": lambda a, b: sameness(a, b, n=8, untrained=1),
    "causal_scrubbing of one claim": lambda a, b: interp.causal_scrubbing(
        a, Claim(Place("blocks.0.attn.hook_v", "own operands"), ("digit_sum",)), n=N
    ),
    "direct_logit_attribution by carry": lambda a, b: interp.direct_logit_attribution(a, n=N, rival="carry"),
    "score by suite": lambda a, b: interp.score(a, n=20, by="suite"),
    "models.score": lambda a, b: models.score(a, a.task.sample(20, torch.Generator().manual_seed(0))),
}
QUESTIONS = {name: partial(ask_briefly, name) for name in asked_of_models()} | MORE


@pytest.fixture(scope="module")
def adders() -> Callable[[str], tuple[ArithmeticTransformer, ArithmeticTransformer]]:
    """An exact adder of a task, and another one with a little noise on every parameter."""
    made: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in made:
            made[name] = exact_adder(TASKS[name]), exact_adder(TASKS[name])
            generator = torch.Generator().manual_seed(1)
            with torch.no_grad():
                for parameter in made[name][1].parameters():
                    parameter.add_(1e-3 * torch.randn(parameter.shape, generator=generator))
        return made[name]

    return of


LATE = {"compare_models", "component_ablation", "attack"}  # in `make test` of other models alone


@pytest.mark.parametrize(
    ("name", "question"),
    [
        pytest.param(name, question, marks=[pytest.mark.slow] * (name != "base 3" or index % 3 > 0 or question in LATE))
        for name in TASKS
        for index, question in enumerate(QUESTIONS)
    ],
)
def test_a_result_or_one_sentence(adders: Any, name: str, question: str):
    try:
        found = QUESTIONS[question](*adders(name))
        if isinstance(found, interp.Result):
            assert numbers_are_finite(found.sentence()) and len(found.to_dataframe())
    except UserError as refused:
        assert str(refused)


# ---- right results


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("base 12", "residues modulo 113"))) for name in TASKS],
)
def test_all_problems_of_the_task_are_run_and_no_fewer(adders: Any, name: str):
    model = adders(name)[0]
    verdict = interp.certify(model, arithmetic="float")
    operands = {
        "residues modulo 113": 113, "residues modulo 12": 12, "base 3": 9, "bits": 32, "base 7": 49, "base 12": 144,
    }[name]  # fmt: skip
    assert verdict.status == "certified" and verdict.score.n == verdict.score.correct == operands**2
    check_certificate(verdict, model)


@pytest.mark.slow
@pytest.mark.parametrize("p", sampled([113, 12], 12))
def test_a_model_destroyed_for_every_operand_from_ten_on_is_refuted(p: int):
    model = exact_adder(modular_addition(p))
    with torch.no_grad():  # a residue from 10 on counts as the next one
        dict(model.weight_map.named_parameters())["embed/W_E"][10:p, p + 1] += 1
    verdict = interp.certify(model)
    assert verdict.status == "refuted" and verdict.score.n == p * p
    assert 100 <= verdict.score.correct < p * p
    ((a, b),) = model.task.numbers(verdict.counterexample.problem)
    assert max(a, b) >= 10 and int(verdict.counterexample.predicted) != (a + b) % p
    check_certificate(verdict, model)
    found = interp.attack(model, runs=300)
    assert found.wrong and all(max(wrong.problem) >= 10 for wrong in found.wrong)


def test_a_task_that_does_not_say_its_domain_is_not_certified():
    class Unsaid(FormattedTask):
        domain = Task.domain

    model = exact_adder(modular_addition(113))
    task = copy.copy(model.task)
    task.__class__, model.task = Unsaid, task
    task.__dict__.pop("domain", None)
    for question in (interp.certify, interp.attack):
        with pytest.raises(UserError):
            question(model)


@pytest.mark.parametrize("name", ["base 7", "base 12", "bits"])
def test_an_adder_that_ignores_its_output_follows_ripple(adders: Any, name: str):
    found = interp.which_algorithm(adders(name)[0], n=160)
    assert set(found.winner(found.deciding) or ()) == {"ripple", "look-ahead"} and (found.table["clean"] == 1.0).all()
    row = found.rows_at(corruption="any", algorithm="ripple").iloc[0]
    assert row.accuracy == 1.0 and row.n_without_carry + row.n_with_carry == row.n  # it wraps around at the task's base


@pytest.mark.parametrize("name", list(TASKS))
def test_the_sum_is_where_it_was_put(adders: Any, name: str):
    model = adders(name)[0]
    n = 20 if name in ("residues modulo 12", "base 3") else 60  # of 78 sums, of 45
    found = interp.interchange_intervention(model, "total", 0, sites="blocks.0.hook_resid_mid", n=n)
    assert found.largest("accuracy").value == 1.0 and found.table["accuracy_untrained_high"][0] < 1.0
    swept = interp.interchange_intervention(model, "a", 0, n=n, positions=["a" if "residues" in name else "a0"])
    accuracy = swept.to_dataframe().set_index("hook").accuracy
    assert accuracy["blocks.0.hook_resid_pre"] == 1.0  # where a's digit goes in
    assert accuracy["blocks.0.hook_resid_mid"] < 0.5  # read already


@pytest.mark.parametrize(("name", "variable"), [("residues modulo 113", "answer"), ("base 7", "digit_sum")])
def test_scrubbing_keeps_the_loss_of_a_hypothesis_that_holds(adders: Any, name: str, variable: str):
    model = adders(name)[0]
    site = Place("blocks.0.hook_resid_mid")  # holds the whole sum, of which the units read what the variable says
    right = interp.causal_scrubbing(model, Claim(site, (variable,)), algorithm="ripple", columns=0, n=400)
    wrong = interp.causal_scrubbing(model, Claim(site), algorithm="ripple", columns=0, n=400)
    assert right.table["recovered"][0] == pytest.approx(1.0, abs=0.02) and right.table["unmatched"][0] < 0.5
    assert wrong.table["recovered"][0] < 0.3


@pytest.mark.parametrize("name", ["residues modulo 113", "residues modulo 12"])
def test_the_tasks_own_variables_are_a_causal_model(adders: Any, name: str):
    model = adders(name)[0]
    site, operand = "blocks.0.hook_resid_mid", Place("blocks.0.hook_resid_pre", "a")
    ask = partial(interp.interchange_intervention, model, column=0, controls=False, n=30)
    found = ask("digit_sum", sites=site, algorithm=TaskVariables())
    assert found.largest("accuracy").value == 1.0
    assert ask("a", sites=operand, algorithm=TaskVariables(("b",))).largest("accuracy").value == 1.0
    with pytest.raises(UserError):  # the answer is no function of a alone
        ask("a", sites=operand, algorithm=TaskVariables())
    with pytest.raises(UserError):  # there is no such problem
        ask("carry_out", sites=site, algorithm=TaskVariables(("digit_sum",)))
    scrubbed = interp.causal_scrubbing(model, Claim(Place(site), "s"), algorithm=TaskVariables(), n=70)
    assert scrubbed.table["recovered"][0] == pytest.approx(1.0, abs=0.02)


def test_what_the_task_cannot_say_is_refused_by_name(adders: Any):
    model = adders("residues modulo 113")[0]
    with pytest.raises(UserError):
        interp.which_algorithm(model)
    with pytest.raises(UserError):
        interp.carry_units(model, n=N, signals="s=0.5")
    with pytest.raises(UserError):
        interp.interchange_intervention(model, "carries", 0)


@pytest.mark.parametrize("name", ["base 3", "base 7", pytest.param("base 12", marks=pytest.mark.slow)])
def test_signals_and_rivals_are_those_of_the_base(adders: Any, name: str):
    model = adders(name)[0]
    base, task = model.task.base, model.task
    units = interp.carry_units(model, n=200, max_ablated=1).table
    problems = interp.core.samples.draw(task, None, 200, 0, 0.5).problems
    carried = task.variables(problems)["digit_sum"][:, :2] >= base
    assert int(units.n.sel(signal="generate", present=True)) == int(carried.sum())
    assert f"s={base - 1}" in units.signal.values and f"s={base}" not in units.signal.values
    rival = interp.direct_logit_attribution(model, n=N, rival="carry")
    assert np.allclose(rival.table.lead, 1.0, atol=1e-2)


def test_a_copy_of_a_task_with_its_own_vocabulary_is_itself(adders: Any):
    model = adders("residues modulo 12")[0]
    assert from_transformer_lens(model, model.task) is model


# ---- probes and ablations by the task's own variables


@pytest.mark.slow
def test_linear_probes_find_each_variable_where_it_is(adders: Any):
    found = interp.linear_probes(adders("residues modulo 113")[0], n=1200)
    assert list(dict.fromkeys(found.table.signal)) == ["carry_out", "digit_sum", "a", "b", "s"]
    best = {signal: found.overall(signal).set_index("site") for signal in found.table.signal.unique()}
    assert best["digit_sum"].accuracy["L0 mid"] > 0.99 > 0.05 > best["digit_sum"].accuracy["L0 pre"]
    assert best["s"].accuracy["L0 post"] > 0.99 > 0.05 > best["s"].accuracy["L0 mid"]
    assert best["carry_out"].accuracy["L0 mid"] > 0.95 > 0.6 > best["carry_out"].accuracy["L0 pre"]
    for signal, rows in best.items():
        assert (rows.accuracy_shuffled < (0.65 if signal == "carry_out" else 0.05)).all()
    with pytest.raises(UserError):
        interp.linear_probes(adders("residues modulo 113")[0], signals="carry_in")


def test_linear_probes_take_variables_beside_the_signals_of_addition(adders: Any):
    found = interp.linear_probes(adders("base 7")[0], n=600, signals=["carry_in", "s"])
    rows = found.overall("s").set_index("site")
    assert rows.accuracy["L0 post"] > 0.95 and rows.score["L0 post"] > 0.99 and rows.accuracy["L0 mid"] < 0.5


def test_units_detect_the_tasks_own_variables_of_two_values(adders: Any):
    model = adders("residues modulo 12")[0]
    result = interp.carry_units(model, n=1000, max_ablated=26, signals=("s=0", "digit_sum=3"))
    assert result.table.signal.values.tolist() == ["carry_out", "s=0", "digit_sum=3", "shuffled"]
    assert result.agreement.rival.values.tolist() == ["carry_out", "s=0", "digit_sum=3"]
    total = interp.core.samples.draw(model.task, None, 1000, 0, 0.5).problems.sum(1).numpy()
    assert result.table.n.sel(present=True).values.tolist()[:3] == [
        int((total >= 12).sum()),
        int((total % 12 == 0).sum()),
        int((total == 3).sum()),
    ]
    # Unit i of this adder is on above the sum i - 2, by one more for each (tests/other_tasks.py).
    edge = result.table.sel(layer=0, unit=12)
    assert float(edge.auroc.sel(signal="carry_out")) == 1.0
    with_carry = edge.sel(signal="carry_out")
    assert with_carry.pre_min.values[1] == pytest.approx(total[total >= 12].min() - 11)
    assert with_carry.pre_max.values[0] == pytest.approx(total[total < 12].max() - 11)
    # Without the unit that begins to tell 11 from 12 every sum above is answered wrongly.
    assert float(with_carry.ablated.sel(present=False)) == 1.0
    assert float(with_carry.effect) == pytest.approx(float((total[total >= 12] > 11).mean()), abs=0.2)
    assert result.by_sum is not None and result.by_sum.attrs["base"] == 12
    assert result.by_sum.sel(layer=0, unit=0, stat="n").sum("digit_sum").values.tolist() == [144, 0]
    assert result.figure().data and result.figure("ablation").data and len(result.to_dataframe()) == 26 * 4


class Unary(FormattedTask):
    """The sum's columns and nothing about them that has two values."""

    def variables(self, problems: Any) -> dict[str, torch.Tensor]:
        return {"s": super().variables(problems)["s"]}


def test_a_task_without_signals_is_asked_for_one_and_has_no_rivals():
    task = Unary("{a:2}{b:2}{s:3r}", "a + b", base=7)
    model = exact_adder(task)
    with pytest.raises(UserError):
        interp.carry_units(model, n=N)
    result = interp.carry_units(model, n=300, max_ablated=1, signals="s=3")
    assert result.by_sum is None and result.table.signal.values.tolist() == ["s=3", "shuffled"]
    problems = interp.core.samples.draw(task, None, 300, 0, 0.5).problems
    expected = task.variables(problems)["s"][:, :2] == 3
    assert int(result.table.n.sel(signal="s=3", present=True)) == int(expected.sum())
    assert np.allclose(  # with no other signal there is no rival to hold fixed
        result.table.auroc_given_rivals.sel(signal="s=3"), abs(result.table.auroc.sel(signal="s=3") - 0.5) + 0.5
    )
    assert set(result.table.rival.sel(signal="s=3").values.ravel()) == {"none"}
    shown = result.figure()  # without sums the figure is of the ablation
    assert shown.to_dict() == result.figure("ablation").to_dict()


@pytest.mark.parametrize(("name", "n_problems", "n_fit"), [("residues modulo 12", 144, 72), ("base 7", 2401, 256)])
def test_swaps_of_a_small_task_take_all_its_problems(adders: Any, name: str, n_problems: int, n_fit: int):
    a, b = adders(name)
    result = interp.swap_components(a, b, components=["L0.mlp", "L0H0 output"], untrained=0)
    small = n_problems < 512
    assert result.n_fit == n_fit and result.provenance.n == (n_problems - n_fit if small else 256)
    assert (str(n_problems) in result.provenance.source) == small
    exact = result.to_dataframe().set_index(["source", "component"]).exact
    for part in ("L0.mlp", "L0H0 output"):
        right = exact.loc["swapped", part] * result.provenance.n
        assert right == pytest.approx(round(right)) and exact.loc["itself", part] == 1.0
        assert exact.loc["ablated", part] < exact.loc["swapped", part]
    uneven = interp.swap_components(a, b, components=["L0.mlp"], n=300, n_fit=100, untrained=0)
    assert (uneven.n_fit, uneven.provenance.n) == ((36, 108) if small else (100, 300))


def test_swaps_need_two_problems_to_fit_on_and_two_to_measure_on():
    model = exact_adder(modular_addition(2))
    with pytest.raises(UserError):
        interp.swap_components(model, model, n=4, n_fit=1)
    four = interp.swap_components(model, model, untrained=0, components=["L0.mlp"])
    assert (four.n_fit, four.provenance.n) == (2, 2)
