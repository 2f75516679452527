"""Tasks whose digits are not decimal; a model of each whose weights are set so that it adds without an error."""

from __future__ import annotations

from benchmarks.agent_tasks.planted import exact_adder as exact_adder
from models.tasks import FormattedTask, formatted


def modular_addition(p: int) -> FormattedTask:
    """``a b = c``, every number one token; p is "="."""
    answer = f"(a + b) % {p}"
    return formatted("{a}{b}=", answer, base=p, variables="addition", held_out=0.5, name="modular-addition")


def column_addition(
    base: int, digits: int = 2, answer_down: bool = False, operands_down: bool = True, python: bool = False
) -> FormattedTask:
    """``a b s`` with operands of ``digits`` digits, highest first unless ``operands_down`` is false, and the sum's
    ``digits`` + 1 digits, units first unless ``answer_down``. With ``python``, the answer is a function, not text."""
    up, answer_up = "" if operands_down else "r", "" if answer_down else "r"
    format = f"{{a:{digits}{up}}}{{b:{digits}{up}}}{{s:{digits + 1}{answer_up}}}"
    answer = (lambda a, b: a + b) if python else "a + b"
    return formatted(format, answer, base=base, variables="addition", name=f"base-{base}-addition")
