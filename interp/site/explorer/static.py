"""The explorer without a kernel: the same view over frames that were computed before, in one piece of HTML.

Frames are kept for every example and, for each model by itself, with nothing ablated, with each head ablated, with each
of up to 16 units ablated (those that write most, on average over the examples and their digits), and of a model with at
most four components with every combination of them. What frames share (most activations do not change when one unit
goes) is stored once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from interp.site.explorer.frames import FEW_UNITS, Frame, describe, frame
from interp.site.explorer.session import examples
from interp.site.explorer.subject import METHODS, Subject
from models.checkpoint import write_bytes_atomic
from models.errors import UserError, unknown_name

HERE = Path(__file__).parent
FEW_COMPONENTS = 4  # of so many all combinations are recorded
_SHORT = 12  # letters; what is shorter is cheaper to repeat than to refer to
_MOST_KEYS = 40  # objects with more are tables by name


def record(
    models: Sequence[Any],
    problems: Sequence[str | tuple[str, str]] | None = None,
    methods: Sequence[str] = METHODS,
) -> dict[str, Any]:
    """Everything that a static view of one or two models shows, for JSON.

    Args:
        models: models, or :class:`Subject` objects.
        problems: texts, or (text, what it shows); by default examples for the models' task.
        methods: ablations to record, of "zero" and "mean".

    Raises:
        UserError: no or too many models, no or unknown problems, an unknown method.
    """
    if not 1 <= len(models) <= 2:
        raise UserError(f"A view shows one model or two, not {len(models)}.")
    for method in methods:
        if method not in METHODS:
            raise unknown_name("ablation method", method, METHODS)
    subjects = [model if isinstance(model, Subject) else Subject(model) for model in models]
    shown = examples(subjects) if problems is None else [(p, "") if isinstance(p, str) else p for p in problems]
    if not shown:
        raise UserError("There is no problem to show: the list is empty.")
    frames = []
    for subject in subjects:
        wholes = {problem: frame(subject, problem) for problem, _ in shown}
        sets = list(_sets(subject, list(wholes.values())))
        recorded = {}
        for problem, whole in wholes.items():
            recorded[_key(problem, "", ())] = whole.to_dict()
            for ablated in sets:
                for method in methods:
                    found = frame(subject, problem, ablated, method, whole=whole)
                    recorded[_key(problem, method, ablated)] = found.to_dict()
        frames.append(recorded)
    return {
        "models": [describe(subject) for subject in subjects],
        "examples": [list(example) for example in shown],
        "methods": list(methods),
        "method": (*methods, "zero")[0],
        "problem": shown[0][0],
        "recorded": frames,
    }


def _sets(subject: Subject, wholes: Sequence[Frame]) -> Iterator[tuple[str, ...]]:
    """The ablations to record: single components, or all combinations of a few."""
    rank = np.nan_to_num(np.concatenate([whole.unit_rank for whole in wholes])).mean(0)
    units = sorted(np.argsort(-rank, kind="stable")[:FEW_UNITS].tolist())
    components = describe(subject)["heads"] + [wholes[0].unit_name(unit) for unit in units]
    largest = len(components) if len(components) <= FEW_COMPONENTS else 1
    for size in range(1, largest + 1):
        yield from combinations(components, size)


def _key(problem: str, method: str, ablated: Sequence[str]) -> str:
    """The view makes the same one; nothing ablated needs no method."""
    return "|".join((problem, method, ",".join(sorted(ablated))))


def pack(value: Any) -> str:
    """JSON in which nothing is written twice: {"pool": [...], "keys": [...], "value"}.

    A part that occurs more than once is {"$": its place in the pool}; an object of several keys is {"#": [which of the
    lists of keys, its values ...]}.
    """
    texts: Counter[str] = Counter()

    def count(part: Any) -> str:
        if isinstance(part, dict):
            text = "{" + ",".join(f"{json.dumps(key)}:{count(item)}" for key, item in part.items()) + "}"
        elif isinstance(part, (list, tuple)):
            text = "[" + ",".join(map(count, part)) + "]"
        else:
            return json.dumps(part)
        texts[text] += 1
        return text

    known: dict[str, int] = {}
    pool: list[str] = []
    keys: dict[str, int] = {}

    def write(part: Any) -> tuple[str, str]:
        """(packed, whole)"""
        if isinstance(part, dict):
            items = [(json.dumps(key), *write(item)) for key, item in part.items()]
            whole = "{" + ",".join(f"{key}:{text}" for key, _, text in items) + "}"
            packed = "{" + ",".join(f"{key}:{short}" for key, short, _ in items) + "}"
            named = "[" + ",".join(key for key, _, _ in items) + "]"
            if 1 < len(items) < _MOST_KEYS:
                shape = keys.setdefault(named, len(keys))
                packed = f'{{"#":[{",".join([str(shape), *(short for _, short, _ in items)])}]}}'
        elif isinstance(part, (list, tuple)):
            items = [write(item) for item in part]
            packed = "[" + ",".join(short for short, _ in items) + "]"
            whole = "[" + ",".join(text for _, text in items) + "]"
        else:
            return json.dumps(part), json.dumps(part)
        if texts[whole] < 2 or len(whole) <= _SHORT:
            return packed, whole
        if whole not in known:
            known[whole] = len(pool)
            pool.append(packed)
        return f'{{"$":{known[whole]}}}', whole

    count(value)
    packed, _ = write(value)
    return f'{{"pool":[{",".join(pool)}],"keys":[{",".join(keys)}],"value":{packed}}}'


def assets() -> Markup:
    """The style and the script of all views of a page; the page needs them once, anywhere."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("view.css", "view.js"))
    return Markup("<style>\n{}</style>\n<script type='module'>\n{}\nmountAll(document);\n</script>\n").format(
        Markup(style), Markup(script)
    )


def static_view(
    models: Sequence[Any],
    problems: Sequence[str | tuple[str, str]] | None = None,
    methods: Sequence[str] = METHODS,
    with_assets: bool = True,
) -> Markup:
    """A prerecorded view of one or two models, as HTML to put into a page.

    About 0.1 MB for MicroAdder and its six examples, with both ablations; 20 ms a recorded frame.

    Args:
        models, problems, methods: as :func:`record` takes them.
        with_assets: with the style and script, 20 kB that a page needs once (:func:`assets`).

    Raises:
        UserError: as :func:`record`.
    """
    data = pack(record(models, problems, methods)).replace("<", "\\u003c")
    view = Markup(
        '<div class="cx" data-explorer><script type="application/json">{}</script>'
        "<noscript>This view steps through a model's answers and needs JavaScript.</noscript></div>\n"
    ).format(Markup(data))
    return view + assets() if with_assets else view


def write_explorer(
    path: Path,
    models: Sequence[Any],
    problems: Sequence[str | tuple[str, str]] | None = None,
    methods: Sequence[str] = METHODS,
) -> None:
    """A page with nothing but a prerecorded view; opens from disk, without a network.

    Raises:
        UserError: as :func:`record`, or a path that is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")
    subjects = [model if isinstance(model, Subject) else Subject(model) for model in models]
    view = static_view(subjects, problems, methods)
    title = " beside ".join(subject.name for subject in subjects)
    page = Markup(
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        "<title>{title}, step by step</title>\n<style>body {{ margin: 0 auto; max-width: 1280px; padding: 1rem; "
        "font-family: Inter, Helvetica, Arial, sans-serif; color: #222; }} h1 {{ font-size: 1.4rem; }}</style>\n"
        "</head>\n<body>\n<h1>{title}, step by step</h1>\n{view}</body>\n</html>\n"
    ).format(title=title, view=view)
    write_bytes_atomic(path, page.encode())
