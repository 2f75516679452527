"""Whether two expressions of whole numbers are equal on a whole domain: derived, and not tried.

    first_difference("(a - b) % 100 + 100 * (a < b)", "(a - b) % 100 + (a < b) * 100", ("a", "b"), 100)     None: equal
    first_difference("a - b", "a - b + (a == b) * (b == 7)", ("a", "b"), 100)                               (7, 7)

The problems in which they differ are the paths of a machine (:mod:`models.tasks.machines.column_machines`), which has
none if they are equal. What has no cases of affine forms (a product of both numbers, a digit in the middle of a number)
is not decided here.

Cost: milliseconds for the answers that people write.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from models.tasks.expressions import Expression
from models.tasks.machines.column_machines import machine_where
from models.tasks.refusals import NoMachine, NoProblems

_ONE_COLUMN = 4_096  # a limit that is no power of a small base is the base, up to here


def first_difference(
    one: Expression | str, other: Expression | str, names: Sequence[str], limit: int, ordered: bool = False
) -> tuple[int, ...] | None:
    """The numbers, in the order of ``names``, of one problem in which two expressions differ; None if they are equal on
    all numbers from 0 to ``limit - 1`` (with ``ordered``, on those whose first number is not smaller than the second).

    Raises:
        NoMachine: neither was derived.
    """
    trees = [(Expression(each) if isinstance(each, str) else each).tree for each in (one, other)]
    differ = ast.Compare(left=trees[0], ops=[ast.NotEq()], comparators=[trees[1]])
    order = ast.Compare(left=ast.Name(names[0]), ops=[ast.GtE()], comparators=[ast.Name(names[1])])
    base, width = _digits_below(limit)
    try:
        machine = machine_where([order, differ] if ordered else [differ], dict.fromkeys(names, width), base)
    except NoProblems:
        return None
    return tuple(machine.problems(machine.first_paths())[0].tolist())


def _digits_below(limit: int) -> tuple[int, int]:
    """(base, digits) of all numbers below a limit. Raises NoMachine if the base is too large."""
    for width in range(64, 0, -1):
        base = round(limit ** (1 / width))
        if base >= 2 and base**width == limit and base <= _ONE_COLUMN:
            return base, width
    raise NoMachine(f"{limit:,} is no power of a small number")
