"""Own models and tasks on the command line: ``--from FILE.py``, ``--task TEXT``, ``--config FIELDS``, ``FILE.py:NAME``,
``--trust``, ``--trust unconfined``, ``--trust=COMMAND`` and ``--trust "COMMAND WITH WORDS"``."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from interp.cli.shared_options import MODEL, PROGRAMS, one_thread
from models.errors import UserError
from models.files import object_in, run_file

if TYPE_CHECKING:
    from models.transformer import ArithmeticTransformer

#: What commands on your own models, tasks and files take, before or after their other words.
OWN_FLAGS = {
    "--task": "TEXT or FILE.py:NAME, the task of a model that does not say its own: '{a:2}+{b:2}={s:3}; a + b'",
    "--config": "NAME=VALUE,... or a JSON object, what a file does not say of its config: act_fn=gelu,n_heads=4",
    "--from": "FILE.py, a file of yours that registers models, tasks, probes or methods; it is run first",
    "--trust": "run a model that is a program, under bubblewrap; --trust=COMMAND or --trust 'COMMAND WITH WORDS' "
    "under a command of yours; --trust unconfined as it is, with all that you may do",
}
_FLAGS = tuple(flag for flag in OWN_FLAGS if flag != "--trust")  # those that need a value
_NEEDED = {"--from": "a file", "--task": "a task", "--config": "fields"}
_given: dict[str, Any] = {}


def taken_out(arguments: list[str]) -> list[str]:
    """The arguments without ``--from FILE``, which is run, and without ``--task TEXT``, ``--config FIELDS`` and
    ``--trust``, which are kept for :func:`load_model`.

    Raises:
        UserError: a flag without its value, or a file that cannot be run.
    """
    _given.clear()
    left, words = [], list(arguments)
    while words:
        word = words.pop(0)
        flag, sign, value = word.partition("=")
        if flag == "--trust":
            if not sign and words and _is_shelter(words[0]):
                value = words.pop(0)
            _given["trust"] = value or True
            continue
        if flag not in _FLAGS:
            left.append(word)
            continue
        if not sign and not words:
            raise UserError(f"{flag} needs {_NEEDED[flag]}.")
        value = value if sign else words.pop(0)
        if flag == "--from":
            run_file(Path(value))
        else:
            _given[flag.strip("-")] = value
    return left


def _is_shelter(word: str) -> bool:
    """Whether a word behind ``--trust`` says how: "unconfined", or a command of several words, which no file is called
    that is there."""
    return word == "unconfined" or (" " in word.strip() and not word.startswith("-") and not os.path.exists(word))


def accepted(function: Callable[..., Any]) -> tuple[str, ...]:
    """Those of the flags here that a command takes: all if it names a model, --trust if it names programs."""
    hints = get_type_hints(function, include_extras=True).values()
    marks = [mark for hint in hints for mark in getattr(hint, "__metadata__", ())]
    if MODEL in marks:
        return tuple(OWN_FLAGS)
    return ("--from", "--trust") if PROGRAMS in marks else ("--from",)


def refuse_unused(function: Callable[..., Any], words: str) -> None:
    """Raise UserError for a flag that was given to a command that does not take it."""
    for flag in OWN_FLAGS:
        if flag.strip("-") in _given and flag not in accepted(function):
            raise UserError(f"{words.split()[-1]} takes no {flag}; see {words} --help.")


def given_task() -> Any:
    """The task of ``--task``: a line of text or ``FILE.py:NAME``; None if there is none."""
    text = _given.get("task")
    if text is None:
        return None
    from models.tasks import task_of_text

    return task_of_text(text)


def given_config() -> dict[str, Any] | None:
    """The fields of ``--config``; None if there are none. Raises UserError for what is neither fields nor JSON."""
    text = _given.get("config")
    return None if text is None else fields_of(text)


def fields_of(text: str, what: str = "A config is") -> dict[str, Any]:
    """Values by name, from ``NAME=VALUE,...`` or a JSON object. Raises UserError for anything else; ``what`` begins the
    sentence."""
    try:
        if text.lstrip().startswith("{"):
            return dict(json.loads(text))
        return {name.strip(): _value(value) for name, _, value in (part.partition("=") for part in text.split(","))}
    except (ValueError, TypeError):
        raise UserError(f"{what} NAME=VALUE,... or a JSON object, not {text!r}.") from None


def _value(text: str) -> Any:
    """A number, true, false or null as JSON writes it, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        if not text.strip():
            raise
        return text.strip()


def said() -> str:
    """``--task TEXT``, ``--config FIELDS`` and ``--trust`` as they were given, each with a space before it; empty if
    they were not."""
    task = "".join(f" --{name} {shlex.quote(_given[name])}" for name in ("task", "config") if name in _given)
    trust = trusted()
    return task + (f" --trust={shlex.quote(trust)}" if isinstance(trust, str) else " --trust" * trust)


def trusted() -> bool | str:
    """What ``--trust`` says: whether files of models that are programs may be run, and how (:func:`models.load`)."""
    return _given.get("trust", False)


def load_model(name_or_path: str) -> ArithmeticTransformer:
    """:func:`models.load`, with the task of ``--task``, the fields of ``--config`` and with ``--trust``; from then on,
    one thread computes."""
    from models.zoo import load

    one_thread()
    return load(name_or_path, task=given_task(), config=given_config(), trust=trusted())


def registered_spec(text: str) -> str:
    """The name under which the model spec ``FILE.py:NAME`` is registered, now if it was not. Raises UserError for
    anything but a spec."""
    from models.registry import ModelSpec, names, register

    spec = object_in(text)
    if not isinstance(spec, ModelSpec):
        raise UserError(f"{text} is a {type(spec).__name__}; train needs a models.ModelSpec.")
    return spec.name if spec.name in names(sweeps=True) else register(spec).name
