"""The signals that a neuron may carry, such as the carry into a column, from a task's variables; and controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from models.errors import unknown_name

RIVALS = ("carry_in", "carry_out", "generate", "propagate")  # confounded with one another: each is held fixed in turn


NAMES = {
    "carry_in": "carry in",
    "carry_out": "carry out",
    "borrow_in": "borrow in",
    "borrow_out": "borrow out",
    "borrow_made": "borrow made",
    "borrow_passed": "borrow passed on",
    "generate": "digit sum >= the base",
    "propagate": "digit sum one below the base",
    "odd": "odd answer digit",
    "shuffled": "shuffled carry-out labels",
}


def signal_name(signal: str) -> str:
    """A signal's name in words."""
    return NAMES.get(signal, f"answer digit {signal.removeprefix('s=')}" if signal.startswith("s=") else signal)


def column_signals(
    variables: Mapping[str, Int[np.ndarray, "n column"]], seed: int, base: int = 10
) -> dict[str, Bool[np.ndarray, "n column"]]:
    """Candidate signals of each column, from a task's variables: four about carries, the rest are controls."""
    answer = variables["s"]
    shuffled = np.random.default_rng(seed).permutation(variables["carry_out"].ravel()).reshape(answer.shape)
    signals = {
        "carry_in": variables["carry_in"],
        "carry_out": variables["carry_out"],
        "generate": variables["digit_sum"] >= base,
        "propagate": variables["digit_sum"] == base - 1,
        "odd": answer % 2,
        **{f"s={digit}": answer == digit for digit in range(base)},
        "shuffled": shuffled,
    }
    return {name: values.astype(bool) for name, values in signals.items()}


def variable_signals(
    variables: Mapping[str, Int[np.ndarray, "n column"]], seed: int, wanted: Sequence[str] | None = None
) -> dict[str, Bool[np.ndarray, "n column"]]:
    """Signals from any task's variables: variables with two values (the larger one means present), "name=value" for
    each in ``wanted``, and, as a control, the first signal shuffled over columns. A difference's ``generate`` and
    ``propagate`` are called ``borrow_made`` and ``borrow_passed``."""
    found: dict[str, np.ndarray] = {}
    of_borrows = {"generate": "borrow_made", "propagate": "borrow_passed"} if "borrow_out" in variables else {}
    for name, values in variables.items():
        if len(known := np.unique(values)) == 2:
            found[of_borrows.get(name, name)] = values == known[1]
    for name in wanted or ():
        variable, _, value = name.partition("=")
        if variable in variables and value.removeprefix("-").isdigit():
            found[name] = variables[variable] == int(value)
    if found:
        first = next(iter(found.values()))
        found["shuffled"] = np.random.default_rng(seed).permutation(first.ravel()).reshape(first.shape)
    return found


#: Variables of a task that adds column by column, from which :func:`column_signals` are made.
OF_COLUMNS = ("carry_in", "carry_out", "digit_sum", "s")


def candidate_signals(
    variables: Mapping[str, Int[np.ndarray, "n column"]],
    seed: int,
    base: int = 10,
    wanted: Sequence[str] = (),
) -> tuple[dict[str, Bool[np.ndarray, "n column"]], tuple[str, ...]]:
    """The signals that a unit may carry, and which of them are rivals of one another.

    For a task that adds column by column these are :func:`column_signals` and :data:`RIVALS`. For any other they are
    :func:`variable_signals` (perhaps none), all of which are rivals but the shuffled one. ``wanted``: further signals,
    "name=value".

    Raises:
        UserError: a wanted signal that is neither a signal nor a value of a variable.
    """
    by_column = all(name in variables for name in OF_COLUMNS)
    of_variables = variable_signals(variables, seed, wanted)
    found = of_variables
    if by_column:
        found = column_signals(variables, seed, base)
        found |= {name: of_variables[name] for name in wanted if name not in found and name in of_variables}
    for name in wanted:
        if name not in found:
            raise unknown_name("signal", name, [*found, *(f"{variable}=0" for variable in variables)])
    return found, RIVALS if by_column else tuple(name for name in found if name != "shuffled")
