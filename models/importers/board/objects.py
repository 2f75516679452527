"""What the text of a file can create (names, functions, classes, objects), and the limits on it."""

from __future__ import annotations

from typing import Any

from models.errors import UserError

MOST_STEPS = 20_000_000  # evaluated nodes
MOST_ENTRIES = 1_000_000  # of a table, list or text
MOST_BITS = 4096  # of an integer
MOST_DEPTH = 60  # calls within calls


class Missing:
    """Something that a file imports and that this package does not know."""

    def __init__(self, name: str):
        self.name = name


class Words:
    """A namespace of words: ``torch``, ``math``, ``F``."""

    def __init__(self, name: str, words: dict[str, Any]):
        self.name, self.words = name, words


class Function:
    """A function of the text, with the scope around it."""

    def __init__(self, node: Any, scope: Scope, defaults: dict[str, Any], owner: Class | None = None):
        self.node, self.scope, self.defaults, self.owner = node, scope, defaults, owner
        self.name = getattr(node, "name", "lambda")
        self.kind = ""  # "property" or "static"

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        return self


class Bound:
    """A method with its instance."""

    def __init__(self, function: Function, instance: Any):
        self.function, self.instance = function, instance


class Class:
    """A class of the text (or of the words)."""

    def __init__(self, name: str, bases: list[Any]):
        self.name, self.bases = name, [base for base in bases if isinstance(base, Class)]
        self.members: dict[str, Any] = {}
        self.fields: list[str] | None = None  # if it is a dataclass

    def __deepcopy__(self, memo: dict[int, Any]) -> Class:
        return self

    def find(self, name: str) -> Any:
        """A member of it or of its bases; None if there is none."""
        if name in self.members:
            return self.members[name]
        return next((found for base in self.bases if (found := base.find(name)) is not None), None)

    def is_a(self, name: str) -> bool:
        return self.name == name or any(base.is_a(name) for base in self.bases)


class Instance:
    """An object of a class of the text."""

    def __init__(self, cls: Class):
        self.cls, self.values = cls, {}


class Scope:
    """Names, and the scope around them."""

    def __init__(self, around: Scope | None = None, names: dict[str, Any] | None = None):
        self.around, self.names = around, {} if names is None else names

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.around
        raise UserError(f"the name {name} is not known")


def what(value: Any) -> str:
    if isinstance(value, Missing):
        return f"{value.name}, which is not in the file"
    if isinstance(value, Instance):
        return f"a {value.cls.name}"
    if isinstance(value, (Class, Function, Words)):
        return value.name
    return f"a {type(value).__name__}"
