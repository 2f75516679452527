"""What the positions of a sequence mean: by themselves (:class:`Role`), and relative to one target.

The *own* column of an answer digit is the one that the digit stands in, the *previous* one the column before it. The
previous output is the answer digit that was written last: the query's own token. Tasks whose columns have other parts
(running sums, products, bits) name these in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OWN, PREVIOUS, OUTPUT = "own operands", "previous operands", "previous output"
DELIMITERS, REST = "delimiters", "rest"
#: The groups of a column of two operands; every key up to the query is in one of them.
PLACES = (OWN, PREVIOUS, OUTPUT, DELIMITERS, REST)

_LABEL = re.compile(r"([A-Za-z]+)(\d*)")
_ENDINGS = ("EOS", "<EOS>")


@dataclass(frozen=True)
class Role:
    """What a token position means: operand digit, delimiter or answer digit.

    ``kind`` is "operand", "delimiter", "answer" or "eos"; ``index`` is the operand's number, ``column`` the digit's
    power of the base (0 is the units digit); both are None where they have no meaning.
    """

    kind: str
    label: str  # short, for axes: "a3", "+", "=", "s3"
    column: int | None = None
    index: int | None = None


def roles_of(labels: str | Sequence[str | Role], kind: str, one_digit_each: bool = False) -> tuple[Role, ...]:
    """Roles from labels such as ``"a1 a0 + b1 b0 ="``, or from a list of labels and roles.

    A label of letters is a digit of ``kind`` ("operand" or "answer"): its number is the column, and letters that are
    new are the next operand. With ``one_digit_each``, every such label is an operand of one digit, such as the tokens
    of a string, "x0 x1 x2". "EOS" is the end of the sequence, and any other label a delimiter.
    """
    found: list[Role] = []
    names: list[str] = []
    for label in labels.split() if isinstance(labels, str) else labels:
        match = _LABEL.fullmatch(label) if isinstance(label, str) else None
        if isinstance(label, Role):
            found.append(label)
        elif label in _ENDINGS:
            found.append(Role("eos", label.strip("<>")))
        elif match is None:
            found.append(Role("delimiter", label))
        elif kind == "answer":
            found.append(Role(kind, label, int(match[2] or 0)))
        elif one_digit_each:
            names.append(label)
            found.append(Role(kind, label, 0, len(names) - 1))
        else:
            names += [match[1]] * (match[1] not in names)
            found.append(Role(kind, label, int(match[2] or 0), names.index(match[1])))
    return tuple(found)


def relative_positions(
    roles: Sequence[Role], queries: Sequence[int], target_roles: Sequence[Role], target: int
) -> dict[str, list[int]]:
    """Positions up to a target's query by what they are to that target, each in one group of :data:`PLACES`: digits of
    operands in its column and in the one before, the query itself where it is part of the answer, and delimiters of the
    prompt."""
    query, own, prompt = queries[target], target_roles[target].column, queries[0] + 1
    at = lambda column: [  # noqa: E731
        i for i, role in enumerate(roles) if role.kind == "operand" and role.column == column
    ]
    groups: dict[str, list[int]] = {
        OWN: [] if own is None else at(own),
        PREVIOUS: at(own - 1) if own else [],
        OUTPUT: [query] if query >= prompt else [],
    }
    if delimiters := [i for i, role in enumerate(roles[:prompt]) if role.kind in ("delimiter", "operator")]:
        groups[DELIMITERS] = delimiters
    return with_rest(groups, query)


def with_rest(groups: Mapping[str, Sequence[int]], query: int) -> dict[str, list[int]]:
    """Groups of positions up to a query, completed by all others up to it ("rest")."""
    visible = {name: [position for position in group if position <= query] for name, group in groups.items()}
    taken = {position for group in visible.values() for position in group}
    left = [position for position in range(query + 1) if position not in taken]
    return visible | {REST: sorted(visible.get(REST, []) + left)}
