"""What every probe must do, checked on one of them: :func:`check_probe`."""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import torch

from interp.core.exam import Exam
from interp.core.probe import MODELS, SEVERAL_MODELS, Probe, find_probe
from interp.core.results import Result
from interp.core.samples import N_PROBLEMS, middle_carry_pairs
from models.checks import Fails, require, table_of
from models.errors import UserError

#: The options that mean the same in every probe, in this order, with their defaults.
SAME: Mapping[str, Any] = {
    "task": None,
    "problems": None,
    "n": N_PROBLEMS,
    "seed": 0,
    "progress": False,
}
#: Names that one of these has elsewhere.
OTHER_NAMES = frozenset({"ablation", "alternative", "draws", "n_problems", "permutations", "random_state", "rng"})
#: Fields of a result that differ from call to call.
_CLOCKS = ("seconds",)


class _Asked:
    """A probe with its test models and the results on them."""

    def __init__(self, probe: Probe, model: Any, options: Mapping[str, Any]):
        self.probe, self.model, self.options = probe, model, options
        self._found: Any = None

    @property
    def of_models(self) -> list[str]:
        """Its parameters that are models, or lists of them."""
        return [name for name in self.probe.subjects if name in (*MODELS, *SEVERAL_MODELS)]

    def call(self, **changed: Any) -> Any:
        """Ask it of the model, with other arguments where they are given."""
        given: dict[str, Any] = dict.fromkeys(MODELS, self.model) | {"models": [self.model, self.model]}
        if "pairs" in self.probe.subjects and "pairs" not in self.options:
            given["pairs"] = middle_carry_pairs(self.model.task, n=16, seed=0)
        subjects = {name: given[name] for name in self.probe.subjects if name in given}
        return self.probe.ask(**subjects | dict(self.options) | changed)

    @property
    def found(self) -> Any:
        if self._found is None:
            self._found = self.call()
        return self._found

    def refuses(self, what: str, **changed: Any) -> None:
        try:
            self.call(**changed)
        except UserError as error:
            require(len(str(error).splitlines()) == 1, f"{what} is refused in more than one line")
            return
        except Exception as error:
            raise Fails(f"{what} is not refused by a UserError, but ends in {type(error).__name__}") from None
        raise Fails(f"{what} is not refused")

    def spoilt(self, parameter: str, broken: Any) -> Any:
        return [self.model, broken] if parameter in SEVERAL_MODELS else broken


def _signature(s: _Asked) -> None:
    """Options come by keyword; those that every probe knows have their usual names, order and defaults."""
    parameters = inspect.signature(s.probe.ask).parameters
    common = [name for name in parameters if name in SAME and name not in s.probe.subjects]
    require(common == [name for name in SAME if name in common], f"the usual order is {', '.join(SAME)}")
    if odd := OTHER_NAMES & set(parameters):
        raise Fails(f"{min(odd)} has another name in other probes")
    behind = list(parameters.values())[len(s.probe.subjects) :]
    require(all(each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in behind), "an option has no name")
    for name in common:
        default = parameters[name].default
        # Cost may forbid the usual number of problems. The number is then in the docstring, with the reason.
        said = name == "n" and re.search(rf"\b{default:,}\b", inspect.getdoc(s.probe.ask) or "")
        usual = default == SAME[name] and type(default) is type(SAME[name])
        require(said or usual, f"{name} is {default}, not {SAME[name]}, and the docstring does not say why")


def _described(s: _Asked) -> None:
    """It has a docstring, and a question of one line."""
    asked = s.probe.question
    require(asked[:1].isupper() and "\n" not in asked and len(asked) < 80, f"{asked!r} is not a question of one line")
    require(inspect.getdoc(s.probe.ask), "it has no docstring")


def _refusals(s: _Asked) -> None:
    """It refuses what is no model, training mode, weights that are not finite, and a single problem, however often."""
    for name in s.of_models:
        s.refuses(f"{name}=3", **{name: 3})
        s.refuses("a model in training mode", **{name: s.spoilt(name, copy.deepcopy(s.model).train())})
        for number in (torch.nan, torch.inf):
            broken = copy.deepcopy(s.model)
            with torch.no_grad():
                next(iter([*broken.parameters(), *broken.buffers()])).fill_(number)
            s.refuses(f"a weight that is {number}", **{name: s.spoilt(name, broken)})
    if s.probe.takes("problems") and "model" in s.probe.subjects:
        one = s.model.task.sample(1, torch.Generator().manual_seed(0))
        s.refuses("a single problem", problems=one)
        s.refuses("a single problem, given 64 times", problems=one.repeat_interleave(64, 0))
    if s.probe.takes("n"):
        s.refuses("n=0", n=0)
        s.refuses("n=2.5", n=2.5)
    s.refuses("an option that it does not have", **{"no_such_option": 1})


def _result(s: _Asked) -> None:
    """It returns a result with a sentence, a table, and what the numbers rest on."""
    require(isinstance(s.found, Result), f"it returns {type(s.found).__name__}, which is no Result")
    said = s.found.sentence()
    require(said and len(said.splitlines()) == 1, "its result has no sentence of one line")
    require(len(s.found.to_dataframe()), "its result's table is empty")
    require(s.found.provenance.n > 0, "its result rests on no inputs")


def _round_trip(s: _Asked) -> None:
    """Its result is the same after it was written to JSON and read."""
    again = type(s.found).from_dict(json.loads(json.dumps(s.found.to_dict(), allow_nan=False)))
    require(again.to_dict() == s.found.to_dict(), "its result is another after JSON")
    require(again.provenance == s.found.provenance, "its provenance is another after JSON")
    pd.testing.assert_frame_equal(again.to_dataframe(), s.found.to_dataframe())


def _again(s: _Asked) -> None:
    """Asked twice it gives the same result, and leaves the model and the random numbers of the program as they were."""
    before = {name: value.clone() for name, value in s.model.state_dict().items()}
    random = torch.get_rng_state()
    first, second = (_timeless(each.to_dict()) for each in (s.found, s.call()))
    require(first == second, "it gives another result the second time")
    require(torch.equal(random, torch.get_rng_state()), "it draws from the program's random numbers")
    after = s.model.state_dict()
    require(all(torch.equal(after[name], value) for name, value in before.items()), "it changes the model's weights")
    left = [name for name, point in s.model.hook_dict.items() if getattr(point, "fwd_hooks", ())]
    require(not left, f"it leaves a hook at {', '.join(left[:1])}")


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _timeless(each) for key, each in value.items() if key not in _CLOCKS}
    return value


#: What is asked of a probe of files or tables, which needs no answer; the rest needs models or pairs.
WITHOUT_ANSWER = ("signature", "question and docstring")
CHECKS: Mapping[str, Callable[[_Asked], None]] = {
    "signature": _signature,
    "question and docstring": _described,
    "refusals": _refusals,
    "result": _result,
    "result after JSON": _round_trip,
    "the same again, and no traces": _again,
}


def _sits(exam: Exam | None) -> None:
    """It reports of each subject of the exam what it should."""
    require(exam is not None, "it was given no exam; see interp.core.exam")
    assert exam is not None
    reported = {kind: exam.reported(exam.found(kind)) for kind in exam.kinds()}
    both = exam.absence.holds(reported["presence"])
    require(not both, f"it reports of presence what it should report of absence: {reported['presence']}")
    wrong = [kind for kind, got in reported.items() if not getattr(exam, kind).holds(got)]
    require(not wrong, "; ".join(f"of {kind} it reports {reported[kind]}" for kind in wrong))


def check_probe(
    probe: str | Callable[..., Any], model: Any = None, *, exam: Exam | None = None, **options: Any
) -> pd.DataFrame:
    """Which of the things that every probe does hold for this one, such as a probe of your own.

    Args:
        probe: a registered probe or its name.
        model: what it is asked of; by default the trained adder with 57 parameters. It needs a task.
        exam: what it must report of subjects for which the truth is known (:class:`interp.core.exam.Exam`). A probe of
            your own fails without one; this package's probes sit theirs in its tests.
        options: options of the probe that keep it short, such as ``n=32``; also ``pairs=``, for a probe of pairs and a
            model whose task has no carries.

    Returns:
        one row per check: its name, whether it passed, and why not. Cost: two calls of the probe, and its exam.

    Raises:
        UserError: a probe that is not registered, or a model that it cannot be asked of.
    """
    name = probe if isinstance(probe, str) else getattr(probe, "__name__", "")
    asked = find_probe(name)
    if not isinstance(probe, str) and probe not in (asked.ask, inspect.unwrap(asked.ask)):
        raise UserError(f"{name} is not the probe that is registered under this name; decorate it with interp.probe.")
    if model is None:
        import models

        model = models.load("microadder-57")
    subjects = set(asked.subjects)
    answerable = bool(subjects) and subjects <= {*MODELS, *SEVERAL_MODELS, "pairs"}
    if answerable and (why := asked.why_not(model)):
        raise UserError(f"{name} does not apply: {why}.")
    checks: dict[str, Callable[[_Asked], None]]
    checks = dict(CHECKS) if answerable else {name: CHECKS[name] for name in WITHOUT_ANSWER}
    if exam is not None or not asked.module.startswith("interp."):
        checks["exam"] = lambda _: _sits(exam)
    return table_of(checks, _Asked(asked, model, options))
