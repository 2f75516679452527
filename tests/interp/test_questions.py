"""Whatever a public question is given, it answers or says in one sentence what it cannot take."""

import inspect
import math
import random
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from jaxtyping import Int

import interp
import models
from interp.core.probe import registered
from models.calls.argument_kinds import Count, Share
from models.calls.bound_arguments import has_check
from models.calls.checked_calls import checked
from models.errors import UserError
from models.tasks import problem_pairs
from models.tasks.named.addition import MICROADDER, PairAddition
from tests.sampling import every_third

PUBLIC = {each.name: each.ask for each in registered().values()}
PUBLIC |= {name: getattr(interp, name) for name in ("explore", "scrubbing_hypothesis")}
NUMBERS = (-1, 2**63, 2**70, math.nan, math.inf, 10**400)
NEVER = (object(), {1: 2}.items(), b"x", 3j)  # what no parameter takes
PARAMETERS = {
    name: [key for key, said in inspect.signature(ask).parameters.items() if said.kind is not said.VAR_KEYWORD]
    for name, ask in PUBLIC.items()
}


@pytest.fixture(scope="module")
def adder():
    return models.load("microadder-57")


@pytest.fixture(scope="module")
def pairs(adder):
    return problem_pairs(adder.task, "carry", column=4, n=4)


def ask(name: str, parameter: str, value: object, adder: Any, pairs: Any) -> None:
    """The question with one bad argument, and a model, pairs and nothing else where it must have something."""
    given: dict[str, Any] = {"model": adder, "a": adder, "b": adder, "pairs": pairs, "models": [adder, adder]}
    needed = {
        key: given.get(key)
        for key, said in inspect.signature(PUBLIC[name]).parameters.items()
        if said.default is said.empty and said.kind is not said.VAR_KEYWORD
    }
    PUBLIC[name](**needed | {parameter: value})


def hints_of(function: Any) -> dict[str, Any]:
    return get_type_hints(inspect.unwrap(function), include_extras=True)


def is_bounded(hint: Any) -> bool:
    """Whether its values are numbers within bounds, as its annotation says."""
    of_number = get_origin(hint) is Annotated and get_args(hint)[0] in (int, float)
    return of_number or any(is_bounded(part) for part in get_args(hint))


def test_a_model_without_values_is_refused(adder):
    with pytest.raises(UserError, match="meta device"):
        interp.score(models.build("microadder-57").to("meta"))


@pytest.mark.parametrize("name", every_third(PUBLIC))
def test_a_public_question_refuses_what_it_cannot_take(name: str, adder, pairs):
    """Numbers out of range wherever a number is meant, and for each annotated parameter what is of no type it names."""
    function = PUBLIC[name]
    hints = hints_of(function)
    taken = []
    for parameter in PARAMETERS[name]:
        hint, default = hints[parameter], inspect.signature(function).parameters[parameter].default
        bad: list[object] = []
        if is_bounded(hint) and not isinstance(default, bool) and "Tensor" not in str(hint):
            bad += NUMBERS
        if has_check(hint) or "Any" not in str(hint):
            bad += NEVER
        for value in bad:
            try:
                ask(name, parameter, value, adder, pairs)
            except UserError:
                continue
            taken.append((parameter, value))
    assert not taken


def test_most_parameters_are_covered():
    hints = [hints_of(PUBLIC[name])[parameter] for name in PUBLIC for parameter in PARAMETERS[name]]
    assert len(PUBLIC) > 40 and sum(hint is not Any for hint in hints) > len(hints) / 2


def test_pairs_and_tokens_of_another_format_are_refused(adder, pairs):
    small = models.load("toygpt-learned-pre")
    with pytest.raises(UserError):
        interp.activation_patching(small, pairs)


@pytest.mark.slow
def test_arrays_and_numbers_of_numpy_are_as_good_as_torch_s(adder):
    problems = torch.tensor([[1, 2], [99, 1], [555, 445]])
    assert models.score(adder, problems.numpy()) == models.score(adder, problems)
    one, other = (interp.attention_by_role(adder, problems=x).to_dataframe() for x in (problems.numpy(), problems))
    assert one.equals(other)
    one = interp.accuracy_by_chain(adder, n_per_length=20, seed=1).to_dataframe()
    other = interp.accuracy_by_chain(adder, n_per_length=np.int64(20), seed=np.uint8(1)).to_dataframe()
    assert one.equals(other)


def test_a_question_keeps_its_name_text_and_signature():
    from interp.probes.accuracy_by_chain import accuracy_by_chain

    assert interp.accuracy_by_chain is accuracy_by_chain  # wherever it is imported from, it checks its arguments
    assert accuracy_by_chain.__name__ == "accuracy_by_chain" and "n_per_length" in (accuracy_by_chain.__doc__ or "")
    assert "n_per_length" in inspect.signature(accuracy_by_chain).parameters


# ---- the state of the process


def state() -> tuple[torch.dtype, torch.device, bool]:
    return torch.get_default_dtype(), torch.get_default_device(), torch.is_autocast_enabled("cpu")


@pytest.fixture(params=["float64", "float16", "meta"])
def elsewhere(request):
    """A program that has set something for its own computations."""
    if request.param in ("float64", "float16"):
        torch.set_default_dtype(getattr(torch, request.param))
        yield
        torch.set_default_dtype(torch.float32)
    else:
        with torch.device("meta"):
            yield


def test_models_load_and_score_alike_whatever_the_program_has_set(elsewhere, adder):
    before = state()
    loaded, built = models.load("microadder-57"), models.build("microadder-57", seed=3)
    for model in (loaded, built):
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        assert {p.device.type for p in model.parameters()} == {"cpu"}
    for (_, ours), (_, theirs) in zip(loaded.named_parameters(), adder.named_parameters(), strict=True):
        assert torch.equal(ours, theirs)
    score = models.score(loaded, ["1+2", "9999999999+1", "57+48"])
    assert (score.correct, score.n) == (3, 3)
    assert interp.accuracy_by_chain(loaded, n_per_length=20).to_dataframe()["correct"].sum() > 0
    assert state() == before


def test_models_are_loaded_and_built_without_autocast(adder):
    with torch.autocast("cpu", torch.bfloat16):
        loaded = models.load("microadder-57")
    tokens = adder.task.encode(["57+48"])
    assert torch.equal(loaded(tokens), adder(tokens))


def test_the_state_comes_back_after_an_error():
    @checked
    def fails(n: int) -> None:
        assert state() == (torch.float32, torch.device("cpu"), False)
        raise ZeroDivisionError

    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ZeroDivisionError):
            fails(3)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_task_of_one_s_own_is_a_task(adder):
    class Mine(PairAddition):
        pass

    zeros = {str(digit): digit for digit in range(10)} | {"+": 0, "=": 0, "<EOS>": 0}
    assert models.score(adder, ["1+2"], task=Mine(MICROADDER + "<EOS>", "mine", vocabulary=zeros)).n == 1


def test_models_are_given_by_name_only_where_a_question_says_so(adder):
    pytest.importorskip("anywidget")
    assert interp.explore("microadder-57", adder) is not None
    for bad in (3, torch.nn.Linear(2, 2), ["microadder-57"]):
        with pytest.raises(UserError):
            interp.explore(bad)
    with pytest.raises(UserError):
        interp.compare("microadder-57", adder)


# ---- options that a function does not have, and single entries of long lists


def test_a_mistyped_option_is_refused_with_the_function_and_the_closest_name():
    adder = models.load("microadder-57")
    for ask, wrong, right in (
        (interp.carry_units, "sede", "seed"),
        (models.score, "problms", "problems"),
        (interp.certify, "arithmatic", "arithmetic"),
    ):
        with pytest.raises(UserError, match=rf"{ask.__name__}.*'{wrong}'.*'{right}'"):
            ask(adder, **{wrong: 1})
    with pytest.raises(UserError, match="model"):
        interp.carry_units()


def test_one_task_for_all_models_may_be_called_task():
    adder = models.load("microadder-57")
    found = interp.compare_models([adder, models.load("microadder-67")], task=adder.task, n=20, questions=["loss"])
    assert len(found.to_dataframe())


@pytest.mark.parametrize("place", [0, 6, 11])
def test_every_entry_of_a_list_is_checked_and_random_numbers_are_not_touched(place):
    @checked
    def ask(columns: Sequence[int]) -> int:
        return len(columns)

    columns: list = [3] * 12
    before = random.getstate()
    assert ask(columns) == 12 and random.getstate() == before
    columns[place] = "three"
    with pytest.raises(UserError, match="'three'"):
        ask(columns)
    assert random.getstate() == before


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"share": 1.5}, "share must be between 0 and 1, not 1.5"),
        ({"steps": 0}, "steps must be a whole number from 1 to 100,000,000, not 0"),
        ({"steps": True}, "not True"),
        ({"groups": {"a": [1], "b": [2, "x"]}}, "'x'"),
        ({"groups": {1: [1]}}, "Every key of groups"),
        ({"pair": (1, 2, 3)}, "pair must be"),
        ({"pair": (1, "x")}, "'x'"),
        ({"rows": torch.zeros(2)}, "rows must be"),
    ],
)
def test_an_annotation_says_what_a_function_takes(bad: dict, said: str):
    @checked
    def ask(
        share: Share = 0.5,
        steps: Count | None = None,
        groups: Mapping[str, Sequence[int]] | None = None,
        pair: tuple[int, int] = (0, 1),
        rows: Int[torch.Tensor, "n 2"] | str = "all",
    ) -> tuple[Any, ...]:
        return share, steps, groups, pair, rows

    good = {"share": np.float32(1), "steps": torch.tensor(3), "groups": {"a": range(3)}, "rows": torch.ones(3, 2).int()}
    assert [type(each) for each in ask(**good)[:2]] == [float, int]
    with pytest.raises(UserError, match=re.escape(said)):
        ask(**bad)


def test_logits_may_come_in_a_hugging_face_output():
    class Wrapped(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, tokens):
            return SimpleNamespace(logits=self.inner(tokens))

    adder = models.load("microadder-57")
    problems = [(57, 48), (9999999999, 1)]
    assert models.score(Wrapped(adder), problems, task=adder.task).correct == 2
    with pytest.raises(UserError):
        models.score(lambda tokens: (adder(tokens), None), problems, task=adder.task)


def test_nothing_is_no_prompt_and_has_no_loss():
    adder = models.load("microadder-57")
    for empty in ([], (), ""):
        with pytest.raises(UserError):
            adder.generate(empty)
    for tokens in (torch.zeros(0, 34, dtype=torch.long), torch.zeros(2, 1, dtype=torch.long)):
        with pytest.raises(UserError):
            adder(tokens, return_type="loss")
