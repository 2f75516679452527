"""The registry of probes: what is in it, whom it suits, and what one more registration brings."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import interp
import models
from interp.cli.page_commands import page_of
from interp.core.probe import (
    chains,
    columns,
    find_probe,
    group,
    neurons,
    parameters,
    probe,
    probes,
    registered,
    two_valued,
)
from interp.core.results import Result
from interp.core.table_result import TableResult
from interp.public_names import EVERYDAY, OTHERS, stub
from interp.site.pages import page_html
from models.errors import UserError
from models.tasks.formats.formatted_task import formatted
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from studies.adderboard.framed_addition import Frame, framed_addition
from tests.applying import applying
from tests.exams import BRIEFLY
from tests.exams.asking import ask_briefly


@pytest.mark.parametrize("name", ["microadder-57", "toygpt-learned-pre", "parity-coupling-1l4h-small"])
def test_what_does_not_apply_says_why_and_is_not_listed(name: str) -> None:
    model, listed = models.load(name), probes(models.load(name))
    for each in registered().values():
        assert (each.why_not(model) == "") == (each.name in listed.index)


def test_a_probe_of_ones_own_is_a_name_of_the_package(own_registry: None) -> None:
    @probe("How many parameters are there?")
    def parameters_counted(model, *, n: int = 1) -> TableResult:
        """Free numbers."""
        raise AssertionError("asked")

    assert "parameters_counted" in interp.probes(models.load("microadder-57")).index
    with pytest.raises(AssertionError, match="asked"):
        interp.parameters_counted(models.load("microadder-57"))  # type: ignore[attr-defined]
    with pytest.raises(UserError):  # arguments are checked like those of every question
        interp.parameters_counted(models.load("microadder-57"), n=-1)  # type: ignore[attr-defined]
    with pytest.raises(UserError):
        find_probe("parameters_count")


def test_two_probes_cannot_have_one_name(own_registry: None) -> None:
    def certify(model) -> Result:
        """Another one."""
        raise NotImplementedError

    with pytest.raises(UserError):
        probe("Is it right?")(certify)


def test_an_answer_takes_the_options_that_the_probe_has(own_registry: None) -> None:
    @probe("What was it asked with?")
    def asked_with(model, *, n: int = 1) -> int:
        """The number."""
        return n

    model = models.load("microadder-57")
    assert find_probe("asked_with").answer(model, n=3, seed=5, task=model.task) == 3
    assert [find_probe("asked_with").takes(name) for name in ("n", "seed")] == [True, False]


def test_the_names_of_the_package_are_the_registry_and_a_few_others() -> None:
    assert set(interp.__all__) == set(registered()) | set(OTHERS) <= set(dir(interp))
    assert tuple(interp.__all__[: len(EVERYDAY)]) == EVERYDAY and len(EVERYDAY) == 12
    assert all(getattr(interp, name) is not None for name in interp.__all__)


def test_type_checkers_and_editors_see_the_same_names() -> None:
    """`python -m interp.public_names` writes the stub again."""
    assert Path(interp.__file__).with_suffix(".pyi").read_text() == stub()


@pytest.mark.parametrize("name", ["probes", "compare"])
def test_a_package_that_can_be_called_is_a_function_with_a_signature(name: str) -> None:
    room = getattr(interp, name)
    parameters = list(inspect.signature(room).parameters)
    assert callable(room) and parameters[0] in ("model", "a") and "task" in parameters


def test_importing_the_package_imports_no_model_and_no_probe() -> None:
    code = "import sys, interp; assert not {'torch', 'interp.core.probe', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_is_no_name_is_no_attribute_and_gets_the_closest_one():
    with pytest.raises(AttributeError, match="carry_units"):
        interp.carry_unitz  # noqa: B018


# ---- what is listed

FRAME = Frame(vocabulary="0123456789+=", between=(10,), after=(11,), answer_down=True)


def highest_first() -> ArithmeticTransformer:
    """A fresh model of a task that writes its answer from the highest digit on."""
    task = framed_addition(FRAME)
    config = TransformerConfig(n_layers=1, d_model=8, n_heads=2, d_head=4, d_mlp=8, d_vocab=12, n_ctx=task.input_length)
    weights = DenseWeights(config)
    weights.initialise(torch.Generator().manual_seed(0))
    return ArithmeticTransformer(weights, task, name="highest first").eval()


@pytest.mark.slow
def test_a_question_that_is_listed_for_a_model_is_answered():
    """component_ablation asks how a model does its task, and refuses one that cannot do it, as this one."""
    model, refused = highest_first(), {}
    for each in applying(model):
        if BRIEFLY[each.name].slow or each.name == "component_ablation":
            continue
        try:
            ask_briefly(each.name, model)
        except UserError as error:
            refused[each.name] = str(error)
    assert refused == {}


def pictured(model: Any) -> dict[str, str]:
    """What a model's listed questions do not answer with a sentence, a table, a figure and a page, by name."""
    failed = {}
    for each in applying(model):
        if BRIEFLY[each.name].slow:
            continue
        try:
            found = ask_briefly(each.name, model)
            assert str(found) and page_html(page_of(each, "a model", found), "")
        except UserError as error:
            failed[each.name] = str(error)
    return failed


@pytest.mark.slow
@pytest.mark.parametrize("name", models.zoo_names())
def test_every_question_that_is_listed_for_a_stored_model_has_a_sentence_a_table_a_figure_and_a_page(name: str):
    assert pictured(models.load(name)) == {}


def test_what_a_model_s_scores_do_not_allow_is_not_listed():
    for name, listed in (("addlm-adder-two-digit", False), ("microadder-57", True)):
        assert ("attention_attribution" in interp.probes(models.load(name)).index) == listed


def test_what_a_task_does_not_allow_is_not_listed():
    listed = set(interp.probes(highest_first()).index)
    for name in ("accuracy_bounds", "decompile"):
        assert name not in listed and registered()[name].why_not(highest_first())
    assert {"certify", "which_algorithm", "attention_readout"} <= listed  # these take either order of digits
    assert not {"training_dynamics", "learning_curves"} & listed  # these are asked of runs
    assert {"training_dynamics", "learning_curves"} <= set(interp.probes().index)


def test_a_model_s_name_does_in_its_place_and_what_is_no_model_is_refused():
    assert interp.probes("microadder-57").equals(interp.probes(models.load("microadder-57")))
    for bad in ("microadder-5", torch.nn.Linear(2, 2), 3):
        with pytest.raises(UserError):
            interp.probes(bad)


def test_a_need_that_is_not_met_says_what_would_meet_it() -> None:
    """Of models that lack one thing each: behind the reason stands a cure, and whoever follows it can ask."""
    plain = formatted("{a:2}+{b:2}={s:3}", "a + b")
    size: Any = {"n_layers": 1, "d_model": 8, "n_heads": 1, "d_head": 8, "act_fn": "relu"}

    def of(task: Any, **other: Any) -> Any:
        cfg = size | {"d_mlp": 8, "d_vocab": task.d_vocab, "n_ctx": task.input_length} | other
        return ArithmeticTransformer(DenseWeights(TransformerConfig(**cfg)), task)

    with_carries = formatted("{a:2}+{b:2}={s:3}", "a + b", variables="addition")
    residues = formatted("{a}{b}=", "(a + b) % 13", base=13)
    for need, without, cure, cured in (
        (two_valued, of(plain), "variables='addition'", of(with_carries)),
        (two_valued, of(residues), "variables='addition'", of(with_carries)),
        (neurons, of(plain, d_mlp=0), "component_ablation", of(plain)),
        (
            columns(3),
            of(formatted("{a:2}*{b:2}={s:4}", "a * b")),
            "{s:4r}",
            of(formatted("{a:3}+{b:3}={s:4r}", "a + b")),
        ),
        (group, of(plain), "% 113", of(residues)),
        (parameters, models.load("parity-hand-built"), "dense_copy", models.load("parity-hand-built").dense_copy()),
        (chains, of(residues), "{s:4r}", models.load("microadder-57")),
    ):
        assert cure in need(without, without.task)
        assert need(cured, cured.task) == ""
