"""No answer depends on which token a digit is: the same function with its tokens in another order gives equal numbers.

Only untrained copies and shuffled tables differ, whose random numbers are drawn token by token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import interp
import models
from interp.core.probe import registered
from models.errors import UserError
from models.tasks import problem_pairs
from models.tasks.columns.addition_algorithms import CHAINED
from models.tasks.columns.column_places import column_places
from models.tasks.named.addition import TenDigitAddition
from studies.population import align
from tests.moved_tokens import MovedTask, moved

N = 48


@cache
def two_orders(name: str) -> tuple[Any, Any]:
    """A model seen through the plain interface of tasks, and the same with its tokens in reverse."""
    model = models.load(name)
    order = list(range(model.cfg.d_vocab))
    return moved(model, order), moved(model, order[::-1])


def pairs(model: Any) -> Any:
    return problem_pairs(model.task, "made carry", column=2, n=12)


ASK: dict[str, Callable[[Any], Any]] = {
    "attention_by_role": lambda m: interp.attention_by_role(m, n=N),
    "attention_attribution": lambda m: interp.attention_attribution(m, n=N),
    "carry_units": lambda m: interp.carry_units(m, n=N),
    "induction_heads": lambda m: interp.induction_heads(m, n=N),
    "circle_fit": lambda m: interp.circle_fit(m),
    "fourier_spectrum": lambda m: interp.fourier_spectrum(m),
    "direct_logit_attribution": lambda m: interp.direct_logit_attribution(m, n=N),
    "logit_lens": lambda m: interp.logit_lens(m, n=N),
    "jacobian_lens": lambda m: interp.jacobian_lens(m, n=2 * N),
    "tuned_lens": lambda m: interp.tuned_lens(m, n=2 * N, steps=5),
    "linear_probes": lambda m: interp.linear_probes(m, n=110, signals="carry_out", sites="L0 mid"),
    "ov_output_shape": lambda m: interp.ov_output_shape(m, n=N),
    "attention_readout": lambda m: interp.attention_readout(m, n=N),
    "score": lambda m: interp.score(m, n=N, by="target"),
    "component_ablation": lambda m: interp.component_ablation(m, n=N, replacement="zero"),
    "parameter_ablation": lambda m: interp.parameter_ablation(m, n=8, only=["blocks/0/attn/b_O"], pairs=False),
    "path_patching": lambda m: interp.path_patching(m, pairs(m)),
    "edge_attribution": lambda m: interp.edge_attribution(m, pairs(m), steps=4),
    "all_circuits": lambda m: interp.all_circuits(m, pairs(m)),
    "smallest_circuit": lambda m: interp.smallest_circuit(m, pairs(m), n_random=3),
    "activation_patching": lambda m: interp.activation_patching(m, pairs(m), site="v", by="role"),
    "causal_scrubbing": lambda m: interp.causal_scrubbing(m, interp.scrubbing_hypothesis(), n=N, columns=[2, 3]),
    "interchange_intervention": lambda m: interp.interchange_intervention(m, "carry_in", 2, n=N),
    "which_algorithm": lambda m: interp.which_algorithm(m, n=80),
    "certify": lambda m: interp.certify(m),
    "loss": lambda m: interp.loss(m, n=N),
    "compare_models": lambda m: interp.compare_models([m], n=N).to_dataframe()[["question", "value", "low", "high"]],
    "align": lambda m: align(m, two_orders("microadder-57")[m.task.order[0] != 0]).distances(),
    "compare": lambda m: interp.compare(m, m, n=12),
    "swap_components": lambda m: interp.swap_components(m, m, n=N, n_fit=64, untrained=0),
}  # fmt: skip
#: Questions of other tasks, and of runs and files; and a search some of whose moves need digits as tokens 0 to 9.
OTHERS = {
    "accuracy_bounds", "accuracy_by_chain", "attack", "certified_circuits", "composition_scores",
    "decompile",
    "group_program", "group_symmetry", "key_attention", "learning_curves", "residual_by_dimension", "restricted_loss",
    "pattern_patching",
    "construction_units",
    "training_dynamics",
}  # fmt: skip
DRAWN = ("untrained", "shuffled", "p_untrained", "p_shuffled", "control_note", "seconds")
SLOW = {"all_circuits", "certify", "compare_models", "smallest_circuit"}
IN_BOTH = {"ov_output_shape", "direct_logit_attribution", "circle_fit"}  # in `make test`, of both models
IN_ONE = {*list(ASK)[::3], *IN_BOTH, "interchange_intervention"} - SLOW


def told(name: str, model: Any) -> pd.DataFrame | str:
    """The result as a table without what is drawn token by token, or the refusal."""
    try:
        found = ASK[name](model)
    except UserError as error:
        return str(error)
    table = found if isinstance(found, pd.DataFrame) else found.to_dataframe()
    return table.drop(columns=[column for column in table if str(column).startswith(DRAWN) or is_drawn(str(column))])


def is_drawn(column: str) -> bool:
    """Whether a measure's control is in this column."""
    return any(f"_{name}" in column for name in ("untrained", "shuffled", "random"))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        pytest.param(model, name, marks=[pytest.mark.slow] * (name not in often))
        for model, often in (("microadder-57", IN_ONE), ("adder-456", IN_BOTH))
        for name in ASK
    ],
)
def test_a_question_has_the_same_answer_whatever_the_order_of_tokens(model: str, name: str):
    torch.manual_seed(0)
    one, other = (told(name, each) for each in two_orders(model))
    if isinstance(one, str):
        assert one == other
        return
    assert isinstance(other, pd.DataFrame) and list(one) == list(other)
    for column in one:
        if pd.api.types.is_numeric_dtype(one[column]):
            values, others = (np.asarray(each[column], dtype=float) for each in (one, other))
            assert values == pytest.approx(others, rel=2e-3, abs=2e-4, nan_ok=True), column
        else:
            assert one[column].astype(str).tolist() == other[column].astype(str).tolist(), column


def test_every_question_is_asked_with_another_order():
    assert set(registered()) - OTHERS <= set(ASK)


def test_a_task_says_which_token_a_digit_is():
    task = TenDigitAddition()
    assert tuple(task.digit_tokens) == tuple(range(10))
    turned = MovedTask(task, list(range(10))[::-1])
    assert tuple(turned.digit_tokens) == tuple(range(10))[::-1]
    assert turned.digit_values(turned.encode([(123, 456)]))[0, :3].tolist() == [3, 2, 1]
    assert task.digit_values(torch.tensor([[-1, 0, 9, 10]])).tolist() == [[-1, 0, 9, -1]]
    layout, own = column_places(turned), column_places(task)
    problems = task.sample(20, torch.Generator().manual_seed(0))
    assert torch.equal(layout.values(CHAINED, problems)["answer"], own.values(CHAINED, problems)["answer"])
    assert torch.equal(layout.answer_tokens(torch.tensor([0, 9])), torch.tensor([9, 0]))


@pytest.mark.parametrize("digits", [(0, 1), (0,) * 10, (*range(9), 10), (*range(9), -1)])
def test_digits_that_are_no_tokens_are_refused(digits: tuple[int, ...]):
    task = MovedTask(TenDigitAddition(), list(range(10)))
    task.digit_tokens = digits
    with pytest.raises(UserError):
        task.digit_values(torch.zeros(1, 3, dtype=torch.int64))
