"""Models of any formats asked the same questions: what each answer rests on, and that nothing is made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from scipy.stats import norm, t

import interp
import models
from interp.compare.answers import question
from interp.compare.known_questions import find_questions
from interp.compare.model_table import ModelRow, ModelTable, cell_text
from interp.compare.subject import subject
from interp.core import stats
from interp.core.answers import Answer, DoesNotApply, Part
from interp.core.controls import untrained_twin
from interp.papers.studies.comparison import STORED, adders, stored_table
from models.errors import UserError
from models.tasks.addition import TenDigitAddition
from models.tasks.algorithms import RIPPLE, column_layout
from models.tasks.multi_addition import AdditionFormat, MultiOperandAddition
from tests.shape_checks import unchecked_shapes

pytestmark = pytest.mark.usefixtures("without_shape_checks")

FORMATS = ("microadder-57", "adder-456", "toygpt-learned-pre", "position-coupling-1l4h-small")


@pytest.fixture(scope="module")
def by_hand() -> ModelTable:
    """Every question to a model whose every number is understood, few problems."""
    with unchecked_shapes():
        return interp.compare_models([models.build("microadder-57-by-hand")], n=200)


def answer(table: ModelTable, name: str, model: int = 0) -> Answer:
    found = table.rows[model].answers[name]
    assert isinstance(found, Answer), found
    return found


# ---- the questions


@pytest.mark.parametrize("name", FORMATS)
def test_places_of_a_query_take_up_every_key_that_it_sees_once(name: str) -> None:
    asked = subject(models.load(name), None, None, 20, 0)
    for column in asked.inner:
        keys = sorted(at for places in asked.layout.places(column).values() for at in places)
        assert keys == list(range(asked.layout.queries[column] + 1))
    assert np.allclose(asked.readings.places.sum(-1), 1, atol=1e-5)


def test_attention_by_place_is_the_role_probe_of_the_same_model() -> None:
    model = models.load("microadder-57")
    table = interp.compare_models([model], questions=["attention: own operands", "attention: previous output"], n=100)
    roles = interp.attention_by_role(model, n=100).table.weight.sel(layer=0, head=0)
    targets = [f"s{k}" for k in range(1, 10)]
    for place in ("own operands", "previous output"):
        expected = float(roles.sel(role=place, target=targets).mean())
        assert answer(table, f"attention: {place}").value == pytest.approx(expected, abs=1e-4)


def test_a_unit_that_is_known_to_carry_the_carry_out_is_found_and_no_unit_of_its_twin_is(by_hand: ModelTable) -> None:
    found = answer(by_hand, "unit: carry out")
    assert found.value == 1.0 and found.control is not None and found.control < 0.8
    units = interp.carry_units(models.build("microadder-57-by-hand"), n=200, seed=0)
    verdict = units.verdict(0, int(found.parts[0].name.removeprefix("L0N")))
    assert verdict["signal"] == "carry_out" and verdict["auroc_apart"] == 1.0
    assert answer(by_hand, "unit: carry in").value < 0.6


def test_the_only_head_is_the_main_head_and_without_it_the_digit_is_a_guess(by_hand: ModelTable) -> None:
    found = answer(by_hand, "head")
    assert [part.name for part in found.parts] == ["L0H0"] and 0.8 < found.value < 0.95  # 1 - 1/10, digits not uniform
    assert found.control is not None and abs(found.control) < 0.1


def test_the_variables_of_a_constructed_adder_are_where_they_were_put(by_hand: ModelTable) -> None:
    for name in ("digit sum", "reads its output"):
        found = answer(by_hand, name)
        assert found.value == 1.0 and found.low is not None and found.low > 0.9
        assert found.control is not None and found.control < 0.4
    assert answer(by_hand, "carry in").value < 0.5  # its sum runs through one direction, and the carry is a part of it


def test_a_proof_names_its_rung_and_a_sample_its_interval(by_hand: ModelTable) -> None:
    proved, sampled = answer(by_hand, "all inputs"), answer(by_hand, "uniform")
    assert proved.value == 1.0 and proved.rung == "certified with rounding" and proved.low is None
    assert sampled.value == 1.0 and sampled.rung == "sampled"
    assert sampled.low is not None and sampled.low == pytest.approx(0.025 ** (1 / 200))  # Clopper-Pearson, 200 of 200


def test_a_stored_proof_is_not_claimed_for_other_weights() -> None:
    model = models.load("microadder-57")
    asked = interp.compare_models([model], questions=["all inputs"], n=20)
    assert answer(asked, "all inputs").note == "certificate stored in the zoo"
    with torch.no_grad():
        next(model.parameters()).add_(1e-3)
    changed = interp.compare_models([model], questions=["all inputs"], n=20).rows[0].answers["all inputs"]
    assert isinstance(changed, DoesNotApply) and "No proof is stored" in changed.why


def test_two_digit_sums_are_all_tried_and_counted_by_chain_length() -> None:
    model = models.load("toygpt-learned-pre")
    table = interp.compare_models([model], questions=["uniform", "chains", "all inputs"], n=20)
    uniform, chains = answer(table, "uniform"), answer(table, "chains")
    assert uniform.rung == chains.rung == "exhaustive" and uniform.n == 10_000 == sum(p.n or 0 for p in chains.parts)
    right = sum(part.value * (part.n or 0) for part in chains.parts)
    assert round(right) == round(uniform.value * 10_000) and uniform.value == answer(table, "all inputs").value
    assert chains.value == min(part.value for part in chains.parts)


def test_a_circle_that_is_built_in_is_in_its_untrained_twin_too() -> None:
    table = interp.compare_models([models.load("microadder-57")], questions=["circle"], n=20)
    found = answer(table, "circle")
    assert found.value < 1e-4 and found.control is not None and found.control < 1e-4


def test_a_model_set_by_hand_has_a_twin_that_knows_nothing() -> None:
    model = models.build("adder-4-by-hand")
    twin = untrained_twin(model, model.task, 0)
    assert models.score(twin).accuracy < 0.01 < 0.99 < models.score(model).accuracy
    drawn = models.build("microadder-57")
    own = [p.clone() for p in untrained_twin(drawn, drawn.task, 3).parameters()]
    fresh = list(models.build("microadder-57", seed=3).parameters())
    assert all(torch.equal(a, b) for a, b in zip(own, fresh, strict=True))  # as before: drawn by its recipe


# ---- which task


def test_sums_of_many_operands_are_asked_as_sums_of_two_unless_a_task_is_given() -> None:
    model = models.load("position-coupling-1l4h-small")
    assert subject(model, None, None, 20, 0).task.shape == (2, 4)  # type: ignore[attr-defined]
    assert subject(model, MultiOperandAddition(3, 4), None, 20, 0).layout.step == 3


def test_sums_of_two_without_a_scratchpad_have_columns() -> None:
    task = MultiOperandAddition(2, 4, AdditionFormat(scratchpad=False))
    layout, problems = column_layout(task), task.sample(50, torch.Generator().manual_seed(0))
    assert torch.equal(RIPPLE.answer(layout.inputs(task.encode(problems))), task.targets(problems)[:, layout.targets])
    with pytest.raises(UserError, match="column by column"):
        column_layout(MultiOperandAddition(3, 4, AdditionFormat(scratchpad=False)))


def test_a_question_that_makes_no_sense_says_why_in_the_cell() -> None:
    model = models.build("parity-hand-built")
    table = interp.compare_models([model], questions=["parameters", "reads its output", "head"], n=20)
    assert answer(table, "parameters").value == 0
    for name in ("reads its output", "head"):
        refused = table.answer("parity-hand-built", name)
        assert isinstance(refused, DoesNotApply) and refused.why
    assert np.isnan(table.matrix().loc["parity-hand-built", "head"])
    assert table.to_dataframe().set_index("question").why["head"] == refused.why
    assert isinstance(table.figure(), go.Figure)
    with pytest.raises(UserError, match="asked where it looks"):
        table.figure("heads")
    assert (table.texts().iloc[0] == "–").sum() == 2


# ---- the table


def test_a_table_survives_json_and_draws_without_its_models(by_hand: ModelTable) -> None:
    again = ModelTable.from_dict(json.loads(json.dumps(by_hand.to_dict())))
    assert again.to_dict() == by_hand.to_dict()
    assert isinstance(again.figure(), go.Figure) and isinstance(again.figure("heads"), go.Figure)


def test_the_same_seed_gives_the_same_table() -> None:
    names = ["uniform", "unit: carry out", "digit sum", "head"]
    tables = [interp.compare_models([models.load("microadder-74")], questions=names, n=60, seed=5) for _ in range(2)]
    assert tables[0].to_dict() == tables[1].to_dict()


def test_rows_of_two_models_of_one_name_are_kept_apart() -> None:
    model = models.load("microadder-57")
    table = interp.compare_models([model, models.load("microadder-57"), model], questions=["parameters"], n=20)
    assert table.names == ["microadder-57", "microadder-57 (2)", "microadder-57 (3)"]
    more = table.with_rows([replace(table.rows[1], answers={"parameters": Answer(58.0)})])
    assert len(more.rows) == 3 and more.answer("microadder-57 (2)", "parameters") == Answer(58.0)
    assert more.select(["microadder-57 (3)"]).names == ["microadder-57 (3)"]


@patch.dict("interp.compare.answers.REGISTRY")
def test_a_new_question_is_one_function() -> None:
    @question("layers", "layers", "How many layers.", "count")
    def layers(asked: Any) -> Answer:
        return Answer(float(asked.model.cfg.n_layers))

    table = interp.compare_models([models.load("toygpt-learned-pre")], questions=["layers"], n=20)
    assert answer(table, "layers").value == 4
    with pytest.raises(UserError, match="registered already"):
        question("layers", "layers", "Again.", "count")(layers)


def test_a_share_below_one_is_never_shown_as_one() -> None:
    (share, _), *_ = find_questions(["uniform"])
    assert cell_text(Answer(0.99994, rung="exhaustive"), share) == "0.99994 (exhaustive)"
    assert cell_text(Answer(1 - 1e-7), share) == "< 1"
    row = ModelRow("m", "sums", "", 1, 1, 1, {"uniform": Answer(0.9998, 0.997, 1.0, 1000, "sampled")})
    whole = ModelRow("n", "sums", "", 1, 1, 1, {"uniform": Answer(1.0, 0.996, 1.0, 1000, "sampled")})
    proved = ModelRow("p", "sums", "", 1, 1, 1, {"uniform": Answer(1.0, rung="exhaustive")})
    table = ModelTable((share,), (row, whole, proved), interp.Provenance(1000, 0, "problems"))
    heat = next(trace for trace in table.figure().data if trace.type == "heatmap" and trace.text is not None)
    assert [line[0] for line in heat.text] == ["0.99", ">.996", "1"]


@pytest.mark.parametrize("right, shown", [(1.0, "1"), (0.9, ">.996")])
def test_what_is_proved_of_all_inputs_is_shown_of_samples_too(right: float, shown: str) -> None:
    (share, _), *_ = find_questions(["uniform"])
    answers = {"uniform": Answer(1.0, 0.996, 1.0, 1000, "sampled"), "all inputs": Answer(right, rung="exhaustive")}
    row = ModelRow("m", "sums", "", 1, 1, 1, answers)
    table = ModelTable((share,), (row,), interp.Provenance(1000, 0, "problems"))
    heat = next(trace for trace in table.figure().data if trace.type == "heatmap" and trace.text is not None)
    assert heat.text[0][0] == shown


def test_parts_are_tabulated_and_questions_without_any_say_so() -> None:
    (chains, _), (size, _) = find_questions(["chains", "parameters"])
    answers = {"chains": Answer(0.5, parts=(Part("0", 1.0, n=10), Part("1", 0.5, n=10))), "parameters": Answer(3.0)}
    table = ModelTable((chains, size), (ModelRow("m", "", "", 1, 1, 1, answers),), interp.Provenance(20, 0, "problems"))
    assert table.parts("chains")["chain length"].tolist() == ["0", "1"]
    with pytest.raises(UserError, match="has no parts; these have: 'chains'"):
        table.parts("parameters")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([], {}, "list is empty"),
        (["microadder-57"], {}, "not a model"),
        (None, {"questions": ["heads"]}, "'head'"),
        (None, {"questions": []}, "at least one question"),
        (None, {"questions": ["head", "head"]}, "none twice"),
        (None, {"n": 5}, "at least 20 problems"),
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


def test_compare_points_to_compare_models_for_two_formats() -> None:
    a, b = models.load("microadder-57"), models.load("toygpt-learned-pre")
    with pytest.raises(UserError, match=r"interp\.compare_models\(\[a, b\]\)"):
        interp.compare(a, b)
    assert interp.compare_models([a, b], questions=["parameters"], n=20).matrix()["parameters"].tolist() == [
        57,
        796_672,
    ]


# ---- any TransformerLens model


@pytest.mark.slow
def test_a_stock_transformer_with_a_task_is_asked_like_any_other() -> None:
    from tests.interp.conftest import stock_copy

    model = models.load("microadder-57")
    stock = stock_copy(model)
    names = ["parameters", "uniform", "attention: own operands", "unit: carry out", "digit sum", "reads its output"]
    own = interp.compare_models([model], questions=names, n=60)
    copy = interp.compare_models([stock], tasks=[TenDigitAddition()], questions=names, n=60)
    for name in names[1:]:
        assert answer(copy, name).value == pytest.approx(answer(own, name).value, abs=1e-4)
    with pytest.raises(UserError, match="pass task"):
        interp.compare_models([stock], questions=names, n=60)


# ---- the stored matrix


@pytest.mark.skipif(not STORED.is_file(), reason="the matrix is not in this checkout")
def test_the_stored_matrix_has_every_adder_and_every_question() -> None:
    table = stored_table()
    assert set(adders()) == set(table.names) and table.provenance.seed == 0
    assert [each.name for each in table.questions] == [each.name for each, _ in find_questions(None)]
    assert tuple(each for each, _ in find_questions(None)) == table.questions
    for row in table.rows:
        entry = Path(models.__file__).parent / "zoo" / row.name
        assert (row.made == "by hand") != entry.is_dir()


def test_the_stored_matrix_repeats_where_it_is_computed_again() -> None:
    names = ["parameters", "uniform", "attention: own operands", "digit sum", "reads its output"]
    table = stored_table()
    for name in ("microadder-74", "adder-4-by-hand"):
        model = models.build(name) if models.get_spec(name).recipe is None else models.load(name)
        fresh = interp.compare_models([model], questions=names, n=table.provenance.n).rows[0]
        for each in names:
            stored = table.answer(name, each)
            assert isinstance(stored, Answer) and isinstance(found := fresh.answers[each], Answer)
            assert stored.value == pytest.approx(found.value, abs=1e-3)


def test_a_unit_s_interval_is_widened_for_few_problems_as_all_intervals_are(monkeypatch: pytest.MonkeyPatch):
    def ask() -> Answer:
        return answer(
            interp.compare_models([models.load("microadder-57")], questions=["unit: carry in"], n=40), "unit: carry in"
        )

    found = ask()
    monkeypatch.setattr(stats, "widened", lambda value, low, high, n, bounds=None: (low, high))
    plain = ask()
    assert found.value == plain.value and found.low is not None and found.high is not None
    factor = t(19).ppf(0.975) / norm.ppf(0.975) * np.sqrt(20 / 19)  # half of the problems choose the unit
    assert (found.value - found.low) / (found.value - plain.low) == pytest.approx(factor)
    assert (found.high - found.value) / (plain.high - plain.value) == pytest.approx(factor)
