"""Models of any formats asked the same questions: what each answer rests on, and that nothing is made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch

import interp
import models
from interp.compare.compare_models import question_of, task_asked_about
from interp.compare.model_table import ModelRow, ModelTable, TableQuestion, cell_text
from interp.core import probe as registry
from interp.core.controls import untrained_twin
from interp.core.estimate import DoesNotApply, Estimate
from interp.core.probe import Summary, find_probe, probe, registered, with_number
from interp.core.table_result import TableResult
from interp.probes.attention_readout import RATIO
from models.errors import UserError
from models.tasks.columns.addition_algorithms import RIPPLE
from models.tasks.columns.column_places import column_places
from models.tasks.named.addition import TenDigitAddition
from models.tasks.named.position_coupling.multi_addition import AdditionFormat, MultiOperandAddition
from tests.exams import BRIEFLY
from tests.exams.asking import kind_of, model_of, options_of
from tests.sampling import sampled
from tests.shape_checks import unchecked_shapes

pytestmark = pytest.mark.usefixtures("without_shape_checks")
SHARE = TableQuestion("score", "right", "How often?", "share")


@pytest.fixture(scope="module")
def by_hand() -> ModelTable:
    """Every question to a model whose every number is understood, few problems."""
    with unchecked_shapes():
        return interp.compare_models([models.build("microadder-57-by-hand")], n=200)


def answer(table: ModelTable, name: str, model: int = 0) -> Estimate:
    found = table.rows[model].answers[name]
    assert isinstance(found, Estimate), found
    return found


# ---- the numbers are the probes' own


def test_a_cell_is_the_number_that_the_probe_gives() -> None:
    model = models.load("microadder-57")
    table = interp.compare_models([model], questions=["attention_by_role", "attention_readout", "carry_units"], n=100)
    gap = interp.attention_by_role(model, n=100).mean_gap()
    found = answer(table, "attention_by_role")
    assert (found.value, found.low, found.high) == (gap.value, gap.low, gap.high)
    assert answer(table, "attention_readout").value == interp.attention_readout(model, n=100).value(RATIO)
    apart = interp.carry_units(model, n=100).table.auroc_given_rivals.sel(signal="carry_out")
    assert answer(table, "carry_units").value == float(apart.max())


def test_a_unit_that_is_known_to_carry_the_carry_out_is_found_and_no_unit_of_its_twin_is(by_hand: ModelTable) -> None:
    found = answer(by_hand, "carry_units")
    assert found.value == 1.0 and found.control is not None and found.control < 0.8
    into, out = found.parts
    assert (into.name, out.name) == ("carry in", "carry out") and into.value < 0.7 < out.value


def test_the_only_head_is_the_main_head_and_without_it_the_digit_is_a_guess(by_hand: ModelTable) -> None:
    found = answer(by_hand, "component_ablation")
    assert [part.name for part in found.parts] == ["L0H0"] and 0.7 < found.value < 0.95  # EOS needs no head
    assert found.control is None  # an untrained copy answers nothing, and so can lose nothing


def test_the_algorithm_of_a_constructed_adder_is_the_one_that_was_put_there(by_hand: ModelTable) -> None:
    found = answer(by_hand, "which_algorithm")
    assert found.value == 1.0 and found.low is not None and found.low > 0.9 and "chained" in found.note
    assert found.control is not None and found.control < 0.4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "value", "status"),
    [pytest.param(0.0, 1.0, "certified", marks=pytest.mark.slow), (0.2, 0.0, "refuted")],
)
def test_what_takes_long_is_asked_by_name(change: float, value: float, status: str, by_hand: ModelTable) -> None:
    assert "certify" not in [each.name for each in by_hand.questions]
    model = models.load("microadder-57")
    with torch.no_grad():
        next(model.parameters()).add_(change)
    found = answer(interp.compare_models([model], questions=["certify"], n=20), "certify")
    assert (found.value, found.note, found.low) == (value, status, None)


@pytest.mark.slow
def test_two_digit_sums_are_all_tried() -> None:
    found = answer(interp.compare_models([models.load("toygpt-learned-pre")], questions=["score"], n=20), "score")
    assert found.strength == "exhaustive" and found.n == 10_000 and found.low is None
    assert found.note == "22 wrong" and round(10_000 * found.value) == 9_978


def test_a_circle_that_is_built_in_is_in_its_untrained_twin_too() -> None:
    found = answer(interp.compare_models([models.load("microadder-57")], questions=["circle_fit"], n=20), "circle_fit")
    assert found.value < 1e-4 and found.control is not None and found.control < 1e-4


def test_a_model_set_by_hand_has_a_twin_that_knows_nothing() -> None:
    model = models.build("adder-4-by-hand")
    twin = untrained_twin(model, model.task, 0)
    assert models.score(twin).accuracy < 0.01 < 0.99 < models.score(model).accuracy
    drawn = models.build("microadder-57")
    own = [p.clone() for p in untrained_twin(drawn, drawn.task, 3).parameters()]
    fresh = list(models.build("microadder-57", seed=3).parameters())
    assert all(torch.equal(a, b) for a, b in zip(own, fresh, strict=True))  # as before: drawn by its recipe


NUMBERS = [each.name for each in with_number()]


@pytest.mark.parametrize("name", sampled(NUMBERS, *[name for name in NUMBERS if not BRIEFLY[name].slow][::3]))
def test_every_number_is_finite_lies_in_its_interval_and_says_what_it_rests_on(name: str) -> None:
    model = model_of(kind_of(name))
    found = find_probe(name).number(model, n=options_of(name, model).get("n", 32), seed=0)
    assert np.isfinite(found.value) and found.n and found.strength
    for each in (found, *found.parts):
        assert each.low is None or each.high is None or each.low - 1e-9 <= each.value <= each.high + 1e-9
    summary = find_probe(name).summary
    assert summary and (summary.unit != "share" or found.value <= 1)


# ---- which task


def test_sums_of_many_operands_are_asked_as_sums_of_two_unless_a_task_is_given() -> None:
    model = models.load("position-coupling-1l4h-small")
    assert task_asked_about(model, None).shape == (2, 4)  # type: ignore[attr-defined]
    assert task_asked_about(model, MultiOperandAddition(3, 4)).shape == (3, 4)  # type: ignore[attr-defined]


def test_sums_of_two_without_a_scratchpad_have_columns() -> None:
    task = MultiOperandAddition(2, 4, AdditionFormat(scratchpad=False))
    layout, problems = column_places(task), task.sample(50, torch.Generator().manual_seed(0))
    assert torch.equal(RIPPLE.answer(layout.inputs(task.encode(problems))), task.targets(problems)[:, layout.targets])
    with pytest.raises(UserError, match="column by column"):
        column_places(MultiOperandAddition(3, 4, AdditionFormat(scratchpad=False)))


def test_a_question_that_makes_no_sense_says_why_in_the_cell() -> None:
    model = models.build("parity-hand-built")
    table = interp.compare_models([model], questions=["score", "which_algorithm", "circle_fit"], n=20)
    assert answer(table, "score").value == 1 and table.rows[0].parameters == 0
    for name in ("which_algorithm", "circle_fit"):
        refused = table.answer("parity-hand-built", name)
        assert isinstance(refused, DoesNotApply) and refused.why
    assert table.to_dataframe().set_index("question").why["circle_fit"] == refused.why
    assert isinstance(table.figure(), go.Figure) and (table.texts().iloc[0] == "–").sum() == 2


# ---- the table


def test_rows_of_two_models_of_one_name_are_kept_apart() -> None:
    model = models.load("microadder-57")
    table = interp.compare_models([model, models.load("microadder-57"), model], questions=["circle_fit"], n=20)
    assert table.names == ["microadder-57", "microadder-57 (2)", "microadder-57 (3)"]
    more = table.with_rows([replace(table.rows[1], answers={"circle_fit": Estimate(58.0)})])
    assert len(more.rows) == 3 and more.answer("microadder-57 (2)", "circle_fit") == Estimate(58.0)
    assert more.select(["microadder-57 (3)"]).names == ["microadder-57 (3)"]


def test_a_new_question_is_one_probe_with_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    registered()
    monkeypatch.setattr(registry, "_PROBES", dict(registry._PROBES))

    @probe(
        "How many layers?", summary=Summary("layers", "count", lambda found: Estimate(float(found.table["value"][0])))
    )
    def layers(model: Any) -> TableResult:
        """Layers."""

        return TableResult(
            "", pd.DataFrame({"of": ["all"], "value": [model.cfg.n_layers]}), interp.Provenance(1, None, "")
        )

    table = interp.compare_models([models.load("toygpt-learned-pre")], questions=["layers"], n=20)
    assert answer(table, "layers").value == 4
    assert "layers" in [each.name for each in with_number(asker="training_dynamics")]


def test_a_share_below_one_is_never_shown_as_one() -> None:
    assert cell_text(Estimate(0.99994, strength="exhaustive"), SHARE) == "0.99994 (exhaustive)"
    assert cell_text(Estimate(1 - 1e-7), SHARE) == "< 1"
    found = (Estimate(0.9998, 0.997, 1.0, 1000), Estimate(1.0, 0.996, 1.0, 1000), Estimate(1.0, strength="exhaustive"))
    rows = tuple(ModelRow(str(i), "sums", "", 1, 1, 1, 1, {"score": each}) for i, each in enumerate(found))
    table = ModelTable((SHARE,), rows, interp.Provenance(1000, 0, "problems"))
    heat = next(trace for trace in table.figure().data if trace.type == "heatmap" and trace.text is not None)
    assert [line[0] for line in heat.text] == ["0.99", ">.996", "1"]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([], {}, "list is empty"),
        (["microadder-57"], {}, "not a model"),
        (None, {"questions": ["scor"]}, "'score'"),
        (None, {"questions": ["compare"]}, "question with a number"),
        (None, {"questions": []}, "at least one question"),
        (None, {"questions": ["score", "score"]}, "none twice"),
        (None, {"n": 5}, "n of at least 20"),
        (None, {"tasks": [None, None]}, "1 models and 2 tasks"),
        (None, {"tasks": [MultiOperandAddition(2, 2)]}, "not the model's task"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(
    arguments: list[Any] | None, options: dict[str, Any], message: str
) -> None:
    given = [models.load("microadder-57")] if arguments is None else arguments
    with pytest.raises(UserError, match=message):
        interp.compare_models(given, **options)


@pytest.mark.slow
def test_compare_points_to_compare_models_for_two_formats() -> None:
    a, b = models.load("microadder-57"), models.load("toygpt-learned-pre")
    with pytest.raises(UserError, match=r"interp\.compare_models\(\[a, b\]\)"):
        interp.compare(a, b)
    table = interp.compare_models([a, b], questions=["circle_fit"], n=20)
    assert [row.parameters for row in table.rows] == [57, 796_672]


# ---- any TransformerLens model


@pytest.mark.slow
def test_a_stock_transformer_with_a_task_is_asked_like_any_other() -> None:
    from tests.interp.conftest import stock_copy

    model = models.load("microadder-57")
    stock = stock_copy(model)
    names = ["score", "attention_by_role", "carry_units", "which_algorithm"]
    own = interp.compare_models([model], questions=names, n=60)
    copy = interp.compare_models([stock], tasks=[TenDigitAddition()], questions=names, n=60)
    for name in names:
        assert answer(copy, name).value == pytest.approx(answer(own, name).value, abs=1e-4)
    with pytest.raises(UserError, match="pass task"):
        interp.compare_models([stock], questions=names, n=60)


def test_the_column_of_a_probe_has_its_name_and_its_words() -> None:
    column = question_of(find_probe("score"))
    assert (column.name, column.unit, column.words) == ("score", "share", find_probe("score").question)


@pytest.mark.slow
def test_a_question_that_applies_to_none_of_the_models_is_no_column_unless_it_is_asked_by_name():
    adder, clock = models.load("microadder-57"), models.build("modular-clock-hand-built", p=13)
    tables = [interp.compare_models(each, n=20) for each in ([adder], [adder, clock])]
    of_adder, of_both = ({question.name for question in table.questions} for table in tables)
    assert "group_program" not in of_adder and "group_program" in of_both
    named = interp.compare_models([adder], questions=["group_program"], n=20)
    assert isinstance(named.rows[0].answers["group_program"], DoesNotApply)
