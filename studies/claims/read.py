"""Read headlines from the file ``headlines.toml`` in a paper's folder.

A ``[[row]]`` has the fields of :class:`~studies.claims.headline.Headline` as keys. Some are special:

    rule      a key of :data:`RULES`, or a table: ``{ is = "at least", bound = 0.5, of = "the share of seeds" }``
    ours      "FINDER/ARGUMENT/...", for example "score/microadder-57", or a table with named arguments:
              ``{ find = "cell", grids = "...", operands = 30 }``. A finder is a function in the paper's module
              ``headlines`` or in :mod:`studies.claims.finders`
    control   a finder that takes the arguments of ``ours`` and returns a list
    command   by default ``python -m studies headlines --paper PAPER``, if there is a number
    each      a list of rows that share the other keys of this one; tables are merged
    "@name"   in place of a text: the text of that name in the table ``[texts]``
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from models.errors import UserError, unknown_name
from studies.claims import finders
from studies.claims.headline import Headline
from studies.claims.rules import AtLeast, AtMost, Between, Digits, Inside, LessFar, Near, Rule, SameRate
from studies.papers import PAPERS

RULES: dict[str, type[Rule]] = {
    "digits": Digits,
    "near": Near,
    "inside": Inside,
    "at least": AtLeast,
    "at most": AtMost,
    "between": Between,
    "same rate": SameRate,
    "less far": LessFar,
}


@cache
def read_headlines(paper: str) -> tuple[Headline, ...]:
    """The headlines of the paper with this key, in the order of its file; empty for a paper without one.

    Raises:
        UserError: a column, rule, finder or argument that does not exist, with the row's claim.
    """
    folder = PAPERS[paper].folder
    file = Path(__file__).parents[1] / folder / "headlines.toml"
    if not file.is_file():
        return ()
    return tuple(
        headline(paper, row, import_module(f"studies.{folder}.headlines"))
        for row in rows_of(tomllib.loads(file.read_text("utf-8")))
    )


def stated(paper: str, claim: str) -> tuple[float, ...]:
    """The numbers that a paper prints for a claim. Raises UserError unless exactly one row makes it."""
    found = [row for row in read_headlines(paper) if row.claim == claim]
    if len(found) != 1:
        raise UserError(f"{len(found)} headlines of {paper} say {claim!r}.")
    return tuple(number.value for number in found[0].stated)


def headline(paper: str, row: dict[str, Any], module: Any = None) -> Headline:
    """The headline of one row; finders are looked up in ``module`` first."""
    claim = row.get("claim", "a row without claim")
    row = ({"command": f"python -m studies headlines --paper {paper}"} if "ours" in row else {}) | row
    try:
        if "control" in row:
            row["control"] = _finder(row["ours"], module, row["control"])
        if "ours" in row:
            row["ours"] = _finder(row["ours"], module)
        if "rule" in row:
            row["rule"] = _rule(row["rule"])
        return Headline(paper, **row)  # type: ignore[arg-type]
    except TypeError as error:
        raise UserError(f"The headline {claim!r} of {paper} cannot be read: {error}.") from error


def rows_of(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, with shared keys merged in and texts filled in."""
    texts = data.get("texts", {})
    for group in data["row"]:
        common = {key: value for key, value in group.items() if key != "each"}
        for own in group.get("each", [{}]):
            row = common | {
                key: common[key] | value if isinstance(value, dict) and key in common else value
                for key, value in own.items()
            }
            yield {key: _text(value, texts) for key, value in row.items()}


def _text(value: Any, texts: dict[str, str]) -> Any:
    if not (isinstance(value, str) and value.startswith("@")):
        return value
    if value[1:] not in texts:
        raise unknown_name("text", value[1:], texts)
    return texts[value[1:]]


def _rule(given: str | dict[str, Any]) -> Rule:
    more = {} if isinstance(given, str) else dict(given)
    name = given if isinstance(given, str) else more.pop("is", "")
    if name not in RULES:
        raise unknown_name("rule", name, RULES)
    return RULES[name](**more)


def _finder(given: str | dict[str, Any], module: Any, name: str = "") -> Callable[..., Any]:
    """The given finder as a function of the store; with ``name``, another finder that takes the same arguments."""
    named = {} if isinstance(given, str) else dict(given)
    first, *arguments = given.split("/") if isinstance(given, str) else (named.pop("find", ""),)
    name = name or first
    found = getattr(module, name, None) or getattr(finders, name, None)
    if not inspect.isfunction(found):
        raise unknown_name("finder", name, [key for key in vars(finders) if inspect.isfunction(vars(finders)[key])])
    inspect.signature(found).bind(None, *arguments, **named)
    return lambda store: found(store, *arguments, **named)
