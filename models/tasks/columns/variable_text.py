"""Text that names a variable of a task, or some of its columns, as one would index the array: ``"carry_in"``,
``"carry_in[3]"``, ``"s[:3]"``, ``"product[1,2]"`` (step 1, column 2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jaxtyping import Int
from torch import Tensor

from models.errors import UserError, unknown_name


def variable_values(variables: Mapping[str, Tensor], text: str) -> Int[Tensor, "n value"]:
    """The values that a text names, one row per problem.

    Raises:
        UserError: an unknown variable (with the closest one), an invalid index, or columns that it does not have.
    """
    match = re.fullmatch(r"\s*(\w+)\s*(?:\[([^\[\]]*)\])?\s*", text)
    if match is None:
        raise UserError(f"{text!r} names no variable; write a variable such as 'carry_in', or 'carry_in[3]', 's[:3]'.")
    name, inside = match[1], match[2]
    if name not in variables:
        raise unknown_name("variable", name, variables)
    values = variables[name]
    if inside is not None:
        shape = tuple(values.shape[1:])
        parts = inside.split(",")
        if len(parts) > len(shape):
            raise UserError(f"{text!r} has {len(parts)} indices and {name!r} has {len(shape)}.")
        index = tuple(_index(part, size, text) for part, size in zip(parts, shape, strict=False))
        values = values[(slice(None), *index)]
    return values.reshape(len(values), -1)


def _index(text: str, size: int, whole: str) -> slice:
    match = re.fullmatch(r"\s*(\d*)\s*(?:(:)\s*(\d*))?\s*", text)
    if match is None or not (match[1] or match[2]):
        raise UserError(f"{text!r} in {whole!r} is not an index; write a column such as 3, or a range such as 1:4.")
    start = int(match[1] or 0)
    stop = (int(match[3]) if match[3] else size) if match[2] else start + 1
    if stop > size or start > size or (not match[2] and start >= size):
        raise UserError(f"{whole!r} reaches past the last column: there are {size}, counted from 0.")
    if start > stop:
        raise UserError(f"The range {text!r} in {whole!r} ends before it starts; write the lower column first.")
    return slice(start, stop)


def variable_text(variable: str, index: int | Sequence[int]) -> str:
    """The text of a variable and its columns: ("product", (1, 2)) gives "product[1,2]"."""
    return f"{variable}[{','.join(map(str, [index] if isinstance(index, int) else index))}]"
