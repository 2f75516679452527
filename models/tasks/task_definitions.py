"""Tasks as data: as one line of text, and as the JSON that a run folder keeps, in both directions.

{a:6}-{b:6}={s:+7}; a - b; where=a >= b; variables=subtraction
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from models.calls.argument_kinds import Check, shown
from models.calls.bound_arguments import typed
from models.errors import UserError, unknown_name
from models.files.python_source import names_an_object, object_in
from models.tasks.task import Task

_OPTIONS = ("base", "where", "variables", "vocabulary", "held_out", "seed", "name")
LONGEST = 10_000  # characters
_NUMBERS = {"base": int, "seed": int, "held_out": float}


#: What makes the tasks of each kind of definition; the file of each kind adds its own.
KINDS: dict[str, Callable[..., Task]] = {}


def task_of(definition: Mapping[str, Any]) -> Task:
    """The task that a stored definition makes: ``{kind: arguments}``, or the arguments of a format alone."""
    kind = next(iter(definition)) if len(definition) == 1 else ""
    return KINDS[kind](**definition[kind]) if kind in KINDS else KINDS["format"](**definition)


@typed
def task_of_text(text: str) -> Task:
    """The task of a line: a format, an answer, and options as ``name=value``, with semicolons between them; or the task
    that ``FILE.py:NAME`` names, whose file is run.

    In place of one answer, ``op NAME = expression`` gives one for each operator: ``op + = a + b; op - = a - b``.

    Raises:
        UserError: a file without such a task, no answer, an unknown option, or what
            :func:`models.tasks.formats.formatted_task.formatted` refuses.
    """
    if len(text) > LONGEST:
        raise UserError(f"The text of a task has at most {LONGEST:,} characters, not {len(text):,}.")
    if names_an_object(text):
        found = object_in(text)
        if not isinstance(found, Task):
            raise UserError(f"{text} is of type {type(found).__name__}, and not a task of models.tasks.")
        return found
    format, *rest = [part.strip() for part in text.split(";")]
    answers: dict[str, str] = {}
    options: dict[str, Any] = {}
    for part in filter(None, rest):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if sign and name.startswith("op ") and value:
            answers[name.removeprefix("op ").strip()] = value
        elif sign and name.isidentifier() and not value.startswith("="):
            if name not in _OPTIONS:
                raise unknown_name("option of a task", name, _OPTIONS)
            options[name] = _value(name, value)
        elif "answer" not in options:
            options["answer"] = part
        else:
            raise UserError(f"The task {text!r} has two answers, {options['answer']!r} and {part!r}.")
    if bool(answers) == ("answer" in options):
        raise UserError(
            f"The task {text!r} needs a format and one answer with a semicolon between them, as in "
            "'{a:3}+{b:3}={s:4}; a + b', or an answer for each operator, as in 'op + = a + b'."
        )
    return KINDS["format"](format, answers or options.pop("answer"), **options)


def _value(name: str, text: str) -> Any:
    if name == "vocabulary" and text[:1] in ("[", "{") and len(text) > 1 and text.isascii() and text[-1] in "]}":
        try:  # a list of texts, or texts with their numbers, as JSON; else the characters themselves
            return json.loads(text)
        except ValueError:
            return text
    if name not in _NUMBERS:
        return text
    try:
        number = _NUMBERS[name](text)
        return int(number) if number == int(number) else number
    except (ValueError, OverflowError):  # int of "nan" or "inf" too
        raise UserError(f"{name} of a task is a number, not {text!r}.") from None


def _read_task(name: str, value: Any) -> Task:
    if isinstance(value, str):
        return task_of_text(value)
    if not isinstance(value, Task):
        raise UserError(f"{name} must be a task of models.tasks, not {shown(value)}.")
    return value


#: A task, or the text of one (:func:`task_of_text`), of which a checked function gets the task.
TASK = Check(_read_task, "a task of models.tasks")
TaskLike = Annotated[Task, TASK]


def _texts_of(given: Any) -> tuple[Any, ...]:
    return tuple(given.values()) if isinstance(given, Mapping) else (given,)


def _joint(answer: Any) -> Any:
    """The answer as one text where it is a list of texts."""
    listed = isinstance(answer, (list, tuple)) and all(isinstance(text, str) for text in answer)
    return ", ".join(answer) if listed else answer


def as_definition(*arguments: Any) -> dict[str, Any] | None:
    """The arguments of a formatted task by name, as JSON; None if one of them is Python code."""
    names = ("format", "answer", "base", "vocabulary", "where", "variables", "held_out", "seed", "name")
    given = dict(zip(names, arguments, strict=True))
    answer = given["answer"]
    by = {operator: _joint(each) for operator, each in answer.items()} if isinstance(answer, Mapping) else {}
    given["answer"] = by or _joint(answer)
    texts = (*_texts_of(given["where"] or ""), *_texts_of(given["answer"]), *_texts_of(given["variables"] or ""))
    if not all(isinstance(text, str) for text in texts):
        return None
    if given["vocabulary"] is not None and not isinstance(given["vocabulary"], (Mapping, str)):
        given["vocabulary"] = list(given["vocabulary"])
    given = {name: value for name, value in given.items() if value is not None}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in given.items()}
