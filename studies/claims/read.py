"""Read the claims of a paper from the file ``claims.toml`` in its folder.

A ``[[row]]`` has the fields of :class:`~studies.claims.headline.Headline` as keys. Some are special:

    rule      "digits", "near", "inside", "at least", "at most", "same rate" or "less far", or a table such as
              ``{ is = "at least", bound = 0.5, of = "the share of seeds" }``; "between" has ``low`` and ``high``
    ours      our number, as an expression in Python: ``"score('microadder-57')"``. It may call the functions of
              :class:`~studies.claims.store.Store`, those of :mod:`studies.claims.ours`, the paper's own measures, and
              some of Python's; ``np`` is NumPy
    let       names for it: ``{ name = "toygpt-none-pre", rows = "= where(stored(...)['rows'], model=name)" }``, where
              "=" begins an expression
    model     an entry of the zoo, whose model is ``model`` in the expressions, and its free numbers are ``w.NAME``
    control   evaluates ``ours`` for so many untrained copies of that model, too
    command   by default ``python -m studies headlines --paper PAPER``, if there is a number
    each      a list of rows that share the other keys of this one; tables are merged
    "@name"   in place of a text: the text of that name in the table ``[texts]``
"""

from __future__ import annotations

import ast
import builtins
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import models
from interp.core.loading import load
from models.errors import UserError, unknown_name
from studies.claims.headline import Headline
from studies.claims.ours import MEASURES, NotStored, Ours, number
from studies.claims.rules import RULES, Near, Rule, Within
from studies.claims.store import Store, free_numbers
from studies.papers import PAPERS

_PYTHON = ("abs", "dict", "float", "len", "list", "max", "min", "range", "round", "set", "sorted", "sum", "zip")
_OF_STORE = [name for name in vars(Store) if not name.startswith("_") and callable(getattr(Store, name))]
_OF_MODEL = ("model", "w")


@dataclass(frozen=True, eq=False)
class Expression:
    """Our number as a claim states it. Called with a store, it gives the number; with a model, too, the number of that
    model instead of the stored one's."""

    text: str
    let: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""

    def __post_init__(self) -> None:
        known = {*MEASURES, *_PYTHON, *_OF_STORE, "np", *self.let, *(_OF_MODEL if self.model else ())}
        for text in (self.text, *(value[1:] for value in self.let.values() if _is_expression(value))):
            nodes = [*ast.walk(ast.parse(text.strip(), mode="eval"))]
            here = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            here |= {node.arg for node in nodes if isinstance(node, ast.arg)}
            for node in nodes:
                if isinstance(node, ast.Name) and node.id not in known | here:
                    raise unknown_name("name in an expression", node.id, known)

    def __call__(self, store: Store, model: Any = None) -> Ours:
        names: dict[str, Any] = {name: getattr(builtins, name) for name in _PYTHON} | {"np": np, **MEASURES}
        names |= {name: getattr(store, name) for name in _OF_STORE} | {"__builtins__": {}}
        if self.model:
            names["model"] = store.load(self.model) if model is None else model
            names["w"] = free_numbers(names["model"])
        try:
            for name, value in self.let.items():
                names[name] = eval(value[1:].strip(), names) if _is_expression(value) else value
            found = eval(self.text.strip(), names)
        except LookupError as error:
            raise NotStored(f"Nothing is stored as {error}.") from error
        if isinstance(found, Ours):
            return found
        n = sum(x.size for x in vars(names["w"]).values())
        return number(found, n, "free numbers of the stored weights", model=self.model)

    def untrained(self, store: Store, copies: int) -> list[Ours]:
        """The same for freshly drawn copies, seeds 0, 1, ...; if none of 20 passes a rule, p < 0.05."""
        with np.errstate(all="ignore"):
            return [self(store, models.build(self.model, seed=seed)) for seed in range(copies)]


def _is_expression(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("=")


@cache
def read_headlines(paper: str) -> tuple[Headline, ...]:
    """The claims of the paper with this key, in the order of its file.

    Raises:
        UserError: a key, rule, or name in an expression that does not exist, with the row's claim.
    """
    load("measures")
    text = (Path(__file__).parents[1] / PAPERS[paper].folder / "claims.toml").read_text(encoding="utf-8")
    return tuple(headline(paper, row) for row in rows_of(tomllib.loads(text)))


def stated(paper: str, claim: str) -> tuple[float, ...]:
    """The numbers that a paper prints for a claim. Raises UserError unless exactly one row makes it."""
    found = [row for row in read_headlines(paper) if row.claim == claim]
    if len(found) != 1:
        raise UserError(f"{len(found)} headlines of {paper} say {claim!r}.")
    return tuple(number.value for number in found[0].stated)


def headline(paper: str, row: dict[str, Any]) -> Headline:
    """The headline of one row."""
    claim = row.get("claim", "a row without claim")
    row = ({"command": f"python -m studies headlines --paper {paper}"} if "ours" in row else {}) | row
    let, model, copies = row.pop("let", {}), row.pop("model", ""), row.pop("control", 0)
    try:
        if "ours" in row:
            ours = row["ours"] = Expression(row["ours"], let, model)
            if copies:
                row["control"] = lambda store: ours.untrained(store, copies)
        if "rule" in row:
            row["rule"] = _rule(row["rule"])
        return Headline(paper, **row)
    except (TypeError, SyntaxError) as error:
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
    if isinstance(value, dict):
        return {key: _text(each, texts) for key, each in value.items()}
    if not (isinstance(value, str) and value.startswith("@")):
        return value
    if value[1:] not in texts:
        raise unknown_name("text", value[1:], texts)
    return texts[value[1:]]


def _rule(given: str | dict[str, Any]) -> Rule:
    more = {} if isinstance(given, str) else dict(given)
    name = given if isinstance(given, str) else more.pop("is", "")
    bounds = {"at least": {"least": "bound"}, "at most": {"most": "bound"}, "between": {"least": "low", "most": "high"}}
    if name == "digits":
        return Near(0.0, **more)
    if name in bounds:
        return Within(**{side: more.pop(key, "printed") for side, key in bounds[name].items()}, **more)
    if name not in RULES:
        raise unknown_name("rule", name, ["digits", *bounds, *RULES])
    return RULES[name](**more)
